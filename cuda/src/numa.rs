//! Places host memory near a device.

use std::path::Path;

/// The folder in which the system describes PCI devices.
const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// Returns the NUMA node of the device at this PCI address, or `None` if the system does not report
/// one or has only one.
pub(crate) fn node(address: &str) -> Option<u32> {
    node_in(Path::new(PCI_DEVICES), address)
}

fn node_in(devices: &Path, address: &str) -> Option<u32> {
    // The driver writes the domain with four or eight digits and letters in upper case; the system
    // uses four digits and lower case.
    let (domain, rest) = address.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let folder = format!("{domain:04x}:{}", rest.to_ascii_lowercase());
    if !folder.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.') {
        return None;
    }
    // -1 means no node.
    std::fs::read_to_string(devices.join(folder).join("numa_node")).ok()?.trim().parse().ok()
}

/// Asks the system to take the pages of this memory from that node, if the node has free pages.
/// Pages that were already touched stay where they are. Returns `false` if the system refuses.
#[cfg(target_os = "linux")]
pub(crate) fn prefer(start: std::ptr::NonNull<u8>, len: usize, node: u32) -> bool {
    /// The memory policy that prefers a node, from `linux/mempolicy.h`.
    const MPOL_PREFERRED: libc::c_int = 1;
    const BITS: usize = libc::c_ulong::BITS as usize;
    let mut nodes = vec![0 as libc::c_ulong; node as usize / BITS + 1];
    nodes[node as usize / BITS] = 1 << (node as usize % BITS);
    // Of the mask, `mbind` reads one bit less than the number of bits that it is given.
    let bits = nodes.len() * BITS + 1;
    // SAFETY: a memory policy changes no contents, regardless of the address, and the mask has as
    // many bits as the kernel reads.
    unsafe { libc::syscall(libc::SYS_mbind, start.as_ptr(), len, MPOL_PREFERRED, nodes.as_ptr(), bits, 0) == 0 }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn prefer(_start: std::ptr::NonNull<u8>, _len: usize, _node: u32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotline::arena::{Memory, Pages};

    #[test]
    fn the_driver_s_spelling_of_an_address_is_found() {
        let devices = tempfile::tempdir().unwrap();
        for (folder, node) in
            [("0000:3b:00.0", "1\n"), ("0001:af:00.0", "-1\n"), ("10000:01:00.1", "12\n"), ("0000:00:00.0", "")]
        {
            std::fs::create_dir(devices.path().join(folder)).unwrap();
            std::fs::write(devices.path().join(folder).join("numa_node"), node).unwrap();
        }
        let node = |address| node_in(devices.path(), address);
        assert_eq!(node("0000:3B:00.0"), Some(1));
        assert_eq!(node("00000000:3b:00.0"), Some(1));
        assert_eq!(node("00010000:01:00.1"), Some(12));
        assert_eq!(node("0001:AF:00.0"), None, "the system reports no node");
        assert_eq!(node("0000:00:00.0"), None, "an empty file");
        assert_eq!(node("0002:AF:00.0"), None, "a missing device");
        for nonsense in ["", "3B", "zz:00:00.0", "0000:../0000:3b:00.0", "0000:3b:00.0/."] {
            assert_eq!(node(nonsense), None, "{nonsense}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_missing_node_is_refused_and_changes_nothing() {
        let mut pages = Pages::new(1 << 20).unwrap();
        for node in [500, u32::from(u16::MAX)] {
            assert!(!prefer(pages.start(), pages.len(), node), "{node}");
        }
        assert!(pages.touch(usize::MAX));
        // SAFETY: the pages belong to this test and were touched.
        assert_eq!(unsafe { pages.start().read() }, 0);
    }
}
