//! The machine on which the checks and measurements ran.

use std::fmt;
use std::process::Command;

use serde::Serialize;
use slotline_cuda::{DeviceInfo, Driver};

/// The machine, its driver, the device, and the date.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    date: String,
    cpu: String,
    /// The number of cores that this process may use.
    cores: usize,
    kernel: String,
    /// Whether the driver is the fake one, without a real device.
    fake: bool,
    /// The newest CUDA version that the driver supports.
    cuda: String,
    device: String,
    device_bytes: usize,
    compute_capability: String,
    pci_address: Option<String>,
    /// The speed and width of the device's link, from sysfs. An idle link may report less than its
    /// maximum.
    link: String,
    numa_node: Option<u32>,
    devices: usize,
}

impl Machine {
    /// Describes the machine at this moment. Properties that cannot be determined are "unknown".
    pub(crate) fn of_this_run(driver: &Driver, device: &DeviceInfo, fake: bool) -> Self {
        Self {
            date: first_line("date", &["--utc", "+%Y-%m-%d"]),
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: first_line("uname", &["-sr"]),
            fake,
            cuda: dotted(driver.version),
            device: device.name.clone(),
            device_bytes: device.memory,
            compute_capability: dotted(device.compute_capability),
            link: device.pci_address.as_deref().and_then(link).unwrap_or_else(unknown),
            pci_address: device.pci_address.clone(),
            numa_node: device.numa_node,
            devices: driver.devices.len(),
        }
    }
}

fn dotted((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

fn unknown() -> String {
    "unknown".into()
}

/// Returns the first line of a program's output.
fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    let text = output.and_then(|output| String::from_utf8(output.stdout).ok());
    text.as_deref().and_then(|text| text.lines().next()).map_or_else(unknown, str::to_owned)
}

fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == "model name");
    field.map_or_else(unknown, |(_, name)| name.trim().to_owned())
}

fn link(pci: &str) -> Option<String> {
    let folder = std::path::Path::new("/sys/bus/pci/devices").join(pci.to_lowercase());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
    let both = |speed, width| Some(format!("{} x{}", read(speed)?, read(width)?));
    let now = both("current_link_speed", "current_link_width");
    let most = both("max_link_speed", "max_link_width");
    Some(format!("{} (at most {})", now?, most?))
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, compute_capability, cuda, link, cpu, cores, kernel, .. } = self;
        let node = self.numa_node.map_or("no NUMA node known".into(), |node| format!("NUMA node {node}"));
        writeln!(f, "{device}, compute capability {compute_capability}, {:.1} GiB", gib(self.device_bytes))?;
        writeln!(f, "link {link}, {node}; driver for CUDA {cuda}, {} devices", self.devices)?;
        write!(f, "{cpu}, {cores} cores, {kernel}, {}", self.date)
    }
}

fn gib(bytes: usize) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}
