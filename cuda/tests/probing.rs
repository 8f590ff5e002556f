//! Tests of what is reported about a driver and its devices.

use cudarc::driver::sys;
use slotline_cuda::{Device, Error, Unavailable, probe};
use slotline_cuda_fake::{Fake, Options};

#[test]
fn a_probe_reports_the_devices() {
    let _fake = Fake::load().session(Options { devices: 2, memory_bytes: 3 << 20, ..Options::default() });
    let driver = probe().unwrap();
    assert_eq!(driver.version, (13, 0));
    assert_eq!(driver.devices.len(), 2);
    for (ordinal, info) in driver.devices.iter().enumerate() {
        assert_eq!((info.ordinal, info.memory), (ordinal, 3 << 20));
        assert!(!info.name.is_empty() && info.compute_capability.0 > 0);
        assert!(info.pci_address.as_ref().is_some_and(|address| address.contains(':')));
        let device = Device::new(ordinal).unwrap();
        assert_eq!((device.ordinal(), device.name(), device.numa_node()), (ordinal, &*info.name, info.numa_node));
        assert_eq!(device.info().uuid, info.uuid);
    }
    assert!(driver.devices[0].uuid.is_some() && driver.devices[0].uuid != driver.devices[1].uuid);
}

#[test]
fn probing_creates_no_context() {
    let fake = Fake::load().session(Options::default());
    probe().unwrap();
    let (mut flags, mut active) = (0, -1);
    // SAFETY: the driver, which was initialised above, writes the numbers.
    let code = unsafe { sys::cuDevicePrimaryCtxGetState(0, &mut flags, &mut active) };
    assert_eq!((code, active), (sys::CUresult::CUDA_SUCCESS, 0));
    fake.assert_released();
    assert!(fake.is_absent() || fake.count("cuDevicePrimaryCtxRetain") == 0);
}

#[test]
fn a_driver_without_devices_is_a_distinct_error() {
    let fake = Fake::load().session(Options { devices: 0, ..Options::default() });
    assert!(matches!(probe(), Err(Unavailable::NoDevice)));
    assert!(matches!(Device::new(0), Err(Error::Unavailable(Unavailable::NoDevice))));
    fake.reset(Options::default());
    assert!(probe().is_ok(), "the driver is queried again");
}

#[test]
fn a_missing_device_is_refused() {
    let fake = Fake::load().session(Options { devices: 2, ..Options::default() });
    for ordinal in [2, usize::MAX] {
        let error = Device::new(ordinal).unwrap_err();
        assert!(matches!(error, Error::NoSuchDevice { devices: 2, .. }), "{error}");
        assert!(error.to_string().contains(&format!("no device {ordinal}")), "{error}");
    }
    fake.assert_released();
}

#[test]
fn a_probe_handles_the_failure_of_every_call() {
    let fake = Fake::load().session(Options::default());
    probe().unwrap();
    let calls = fake.calls();
    let mut failed = Vec::new();
    for n in 0..calls {
        fake.reset(Options::default());
        fake.fail_call(n, 999);
        match probe() {
            Err(Unavailable::Driver(error)) => {
                assert_eq!(error.code, 999);
                failed.push(error.call);
            }
            Err(other) => panic!("{other}"),
            // The device has no PCI address, and so no NUMA node is known, or it has no UUID.
            Ok(driver) => {
                let info = &driver.devices[0];
                assert!(info.pci_address.is_none() && info.numa_node.is_none() || info.uuid.is_none());
                failed.push("none");
            }
        }
    }
    failed.dedup();
    let expected = ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName"];
    assert_eq!(failed[..5], expected);
    assert_eq!(failed[5..], ["cuDeviceTotalMem", "cuDeviceGetAttribute", "none"]);
    fake.fail_from(0, 100);
    assert!(matches!(probe(), Err(Unavailable::NoDevice)), "cuInit returns this code without devices");
}

#[test]
fn errors_name_the_call_the_device_and_the_remedy() {
    let fake = Fake::load().session(Options { devices: 2, ..Options::default() });
    let device = Device::new(1).unwrap();
    let error = |code| {
        fake.fail_from(0, code);
        let Err(Error::Driver(error)) = device.synchronize() else { panic!("the call must fail") };
        fake.fail_none();
        assert_eq!((error.code, error.device), (code, Some(1)));
        error
    };
    // The driver returns no description if every call fails.
    let text = error(700).to_string();
    assert!(text.starts_with("cuCtxGetCurrent on device 1: ") && text.contains("(700)"), "{text}");
    assert!(text.contains("a kernel or copy failed earlier"), "{text}");

    fake.fail_call(0, 2);
    let text = device.synchronize().unwrap_err().to_string();
    assert!(text.starts_with("cuCtxGetCurrent on device 1: CUDA_ERROR_OUT_OF_MEMORY (2), "), "{text}");
    assert!(text.contains("the device's memory is full"), "{text}");
    assert!(!error(1).to_string().contains(';'), "there is no advice for this code");
}
