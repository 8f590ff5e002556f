//! Makes untrusted strings safe to print in messages.

/// The URL schemes that are recognised even without two slashes after the colon. The first two are
/// those of web servers.
const SCHEMES: [&str; 9] = ["http", "https", "s3", "s3a", "gs", "az", "adl", "abfs", "abfss"];

/// Makes a string from a file, a server or a user safe to print, such as a path in an error
/// message: removes the secrets of URLs, and escapes control characters and those that change the
/// direction of text.
///
/// ```
/// use slotline::sanitized;
///
/// assert_eq!(sanitized("https://host/a.tar?key=secret"), "https://host/a.tar?…");
/// assert_eq!(sanitized("a\x1b[2J.jpg"), r"a\u{1b}[2J.jpg");
/// ```
pub fn sanitized(text: &str) -> String {
    let text = text.split(' ').map(without_secrets).collect::<Vec<_>>().join(" ");
    if !text.contains(is_terminal_control) {
        return text;
    }
    let escape =
        |char: char| if is_terminal_control(char) { char.escape_default().to_string() } else { char.to_string() };
    text.chars().map(escape).collect()
}

/// Returns whether a character controls a terminal or changes the direction of text.
pub fn is_terminal_control(char: char) -> bool {
    char.is_control() || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Removes the user, the password and the query of each URL in a word. (In
/// `abfs://container@account/`, the part before the `@` is not a user.)
fn without_secrets(word: &str) -> String {
    let (mut text, mut rest) = (String::new(), word);
    while let Some((start, is_web)) = url_start(rest, 0) {
        let (scheme, after) = rest.split_at(start);
        text.push_str(scheme);
        let part = &after[..url_start(after, 1).map_or(after.len(), |(next, _)| scheme_start(&after[..next]))];
        rest = &after[part.len()..];
        let (part, query) = part.split_once('?').filter(|_| is_web).map_or((part, false), |(part, _)| (part, true));
        let (host, path) = part.split_at(part.find('/').unwrap_or(part.len()));
        // If the text after the colon is not a port, it is a password with an unescaped slash,
        // which ends at the last `@` of the path.
        let is_port = |port: &str| {
            let port = port.trim_end_matches(['"', ')', ',', ':', ';']);
            !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
        };
        let cut =
            !host.contains('@') && !host.contains('[') && host.split_once(':').is_some_and(|(_, port)| !is_port(port));
        let user = if cut { path.rfind('@').map(|at| host.len() + at) } else { host.rfind('@') };
        let user = user.filter(|&at| is_web || part[..at].contains(':'));
        text.push_str(user.map_or("", |_| "…"));
        text.push_str(&part[user.unwrap_or(0)..]);
        if query {
            text.push_str("?…");
            return text;
        }
    }
    text + rest
}

/// Returns where the host or the user of the first URL of a word begins, and whether the URL is
/// that of a web server. One of the [`SCHEMES`] needs at least `slashes` slashes after its colon,
/// and any other scheme needs two.
fn url_start(word: &str, slashes: usize) -> Option<(usize, bool)> {
    word.match_indices(':').find_map(|(at, _)| {
        let after = &word[at + 1..];
        let host = after.trim_start_matches(['/', '\\']);
        let scheme = &word[scheme_start(&word[..at + 1])..at];
        let known = SCHEMES.iter().position(|known| scheme.eq_ignore_ascii_case(known));
        let is_url =
            known.is_some() && after.len() - host.len() >= slashes || !scheme.is_empty() && after.starts_with("//");
        is_url.then_some((word.len() - host.len(), known.is_some_and(|at| at < 2)))
    })
}

/// Returns where the scheme begins in a text that ends with a scheme, its colon and its slashes.
fn scheme_start(text: &str) -> usize {
    let name = text.trim_end_matches(['/', '\\']).trim_end_matches(':');
    name.trim_end_matches(|char: char| char.is_ascii_alphanumeric()).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_secrets_of_urls() {
        for (text, expected) in [
            ("http://a:b@host/x.tar?c=d::e", "http://…@host/x.tar?…"),
            ("get https://token@host:80/a@b.tar now", "get https://…@host:80/a@b.tar now"),
            ("https://a:b/c@host/x", "https://…@host/x"),
            ("https://a:b@host/x::http://c:d@host/y", "https://…@host/x::http://…@host/y"),
            ("http://host:80/a@b.tar http://[::1]/a@b", "http://host:80/a@b.tar http://[::1]/a@b"),
            ("abfs://container@account/x?y s3://b/a?c", "abfs://container@account/x?y s3://b/a?c"),
            ("s3://key:secret@bucket/x", "s3://…@bucket/x"),
            ("http:/a:b@host/x npy:https:a:b@host/x", "http:/…@host/x npy:https:…@host/x"),
            ("HTTPS:///token@host/x?c", "HTTPS:///…@host/x?…"),
            (r"http:\\a:b@host/x", r"http:\\…@host/x"),
            ("s3:/key:secret@bucket/x,gs:/a:b@c", "s3:/…@bucket/x,gs:/…@c"),
            ("http://a:gs:b@host", "http://…@host"),
            ("http://a:/b@host/x", "http://…@host/x"),
            ("tags:a@b lost+http://a@b, http: a@b", "tags:a@b lost+http://…@b, http: a@b"),
        ] {
            assert_eq!(sanitized(text), expected);
        }
    }
}
