"""Servers that redirect to other servers, or that quote request headers in their responses."""

import contextlib

import pytest
from test_files import Server, assert_same, rows, served, tar

import slotline
from slotline import Loader


@pytest.fixture
def serve(tmp_path):
    """Starts servers, and stops them after the test. Each records the headers that it receives."""
    servers = contextlib.ExitStack()

    def start(answer=None):
        received = []

        class Noting(Server):
            def reply(self, with_contents):
                received.append(dict(self.headers))
                super().reply(with_contents) if answer is None else answer(self)

        server = servers.enter_context(served(Noting, tmp_path))
        return f"http://127.0.0.1:{server.server_port}", received

    with servers:
        yield start


@pytest.fixture
def credentials(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    for name, value in (("ACCESS_KEY_ID", "AKIDEXAMPLE"), ("SECRET_ACCESS_KEY", "SECRETKEYVALUE"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "TOKENVALUE")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    return lambda url: monkeypatch.setenv("AWS_ENDPOINT", url)


def test_credentials_are_not_sent_to_where_a_server_redirects(tmp_path, serve, credentials):
    _, samples = tar(tmp_path)
    other, received = serve()

    def redirect(request):
        request.send_response(307)
        request.send_header("Location", f"{other}/tars/{request.path.rsplit('/', 1)[1]}?X-Amz-Signature=SIGNATURE")
        request.send_header("Content-Length", "0")
        request.end_headers()

    bucket, first_received = serve(redirect)
    credentials(bucket)
    with pytest.raises(slotline.DataError, match=f"set `follow_redirects`.*redirects to {other}$"):
        slotline.open("s3://bucket/shard-000.tar")
    assert received == []
    dataset = slotline.open("s3://bucket/shard-{000..001}.tar", follow_redirects=True)
    assert_same(rows(Loader(dataset, 4, num_workers=2)), samples)
    assert all("authorization" in {name.lower() for name in headers} for headers in first_received)
    allowed = {"accept", "host", "if-match", "range", "user-agent"}
    assert received and all({name.lower() for name in headers} <= allowed for headers in received)


def test_what_a_server_received_is_not_quoted(tmp_path, serve, credentials):
    def echo(request):
        text = f"<Error><Code>AccessDenied</Code><Message>\x1b[2J{dict(request.headers)}</Message></Error>".encode()
        request.send_response(403)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(text)

    bucket, received = serve(echo)
    credentials(bucket)
    for url in ("s3://bucket/*.tar", "s3://bucket/a.tar", f"{bucket}/a.tar?X-Amz-Signature=SIGNATURE&token=SIGNATURE"):
        with pytest.raises(slotline.DataError) as caught:
            slotline.open(url)
        text = str(caught.value)
        secrets = [value for headers in received for name, value in headers.items() if name.lower().startswith("auth")]
        assert not any(secret in text for secret in ["TOKENVALUE", "SECRETKEYVALUE", "SIGNATURE", "\x1b", *secrets]), text
        assert "403" in text and len(text) < 1200


def test_an_index_is_used_for_its_own_url_only(tmp_path, serve, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    _, samples = tar(tmp_path)
    own, other = serve()[0], serve()[0]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "shard-000.tar").write_bytes((tmp_path / "tars" / "shard-000.tar").read_bytes())
    for url in (f"{own}/tars", f"{other}/tars", f"{own}/other"):
        assert_same(rows(Loader(slotline.open(f"{url}/shard-000.tar"), 4)), samples[:10])
    indexes = sorted((tmp_path / "user" / "slotline" / "indexes").iterdir())
    contents = [index.read_bytes() for index in indexes]
    assert len(indexes) == len(set(contents)) == 3
    for index in indexes:
        index.write_bytes(contents[0])
    for url in (f"{own}/tars", f"{other}/tars", f"{own}/other"):
        assert_same(rows(Loader(slotline.open(f"{url}/shard-000.tar"), 4)), samples[:10])
    assert [index.read_bytes() for index in indexes] == contents
