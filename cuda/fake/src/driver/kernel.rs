//! Modules and kernels. A kernel's parameters are those that its PTX declares. Host functions run
//! in place of device code, and the memory that kernels read is checked.

use std::collections::BTreeMap;
use std::ffi::c_void;

use super::code::{
    ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, Outcome,
};
use super::memory::{hash, read};
use super::stream::{Access, Place, Work};
use super::{Driver, Handle};
use crate::control::HostKernel;

pub(super) struct Module {
    device: usize,
    /// The sizes of each kernel's parameters, in bytes.
    kernels: BTreeMap<String, Vec<usize>>,
}

#[derive(Clone)]
pub(super) struct Function {
    device: usize,
    module: Handle,
    name: String,
    sizes: Vec<usize>,
}

#[derive(Clone, Copy)]
pub(super) struct HostFunction {
    pub(super) run: HostKernel,
    pub(super) user: usize,
}

/// The parameters that determine which memory a kernel reads.
#[derive(Clone, Copy)]
pub(super) struct Watch {
    pub(super) pointer: usize,
    pub(super) count: usize,
    pub(super) unit: usize,
}

/// A launched kernel.
pub(super) struct Run {
    name: String,
    device: usize,
    params: Vec<Vec<u64>>,
    grid: [u32; 3],
    block: [u32; 3],
    /// The start and length of each range that the kernel reads.
    reads: Vec<(usize, usize)>,
    /// The hash of each range when the kernel started.
    seen: Vec<u64>,
    steps_left: u32,
}

impl Module {
    pub(super) fn device(&self) -> usize {
        self.device
    }
}

impl Function {
    pub(super) fn device(&self) -> usize {
        self.device
    }
}

impl Run {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn accesses(&self) -> Vec<Access> {
        self.reads.iter().map(|&(start, bytes)| Access { start, bytes, writes: false }).collect()
    }

    fn hashes(&self) -> Vec<u64> {
        self.reads.iter().map(|&(start, bytes)| hash(&read(start, bytes))).collect()
    }
}

/// The arguments of a launch.
pub(super) struct Request {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) stream: Handle,
    pub(super) params: *const *const u8,
    pub(super) has_extra: bool,
}

const MAX_THREADS: u32 = 1024;

impl Driver {
    /// # Safety
    ///
    /// The image must be a C string if it is not a binary.
    pub(super) unsafe fn load_module(&mut self, image: *const u8) -> Outcome<Handle> {
        let device = self.current()?;
        if image.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller passes an image with at least one byte, and text that is
        // nul-terminated.
        let text = unsafe {
            if !(*image).is_ascii_graphic() && !(*image).is_ascii_whitespace() {
                return Err(INVALID_IMAGE);
            }
            std::ffi::CStr::from_ptr(image.cast())
        };
        let ptx = text.to_str().ok().filter(|text| text.contains(".version")).ok_or(INVALID_IMAGE)?;
        let kernels = signatures(ptx).ok_or(INVALID_PTX)?;
        let handle = self.handle();
        self.modules.insert(handle, Module { device, kernels });
        Ok(handle)
    }

    pub(super) fn unload_module(&mut self, module: Handle) -> Outcome {
        self.current()?;
        self.modules.remove(&module).ok_or(INVALID_HANDLE)?;
        self.functions.retain(|_, function| function.module != module);
        Ok(())
    }

    pub(super) fn find_function(&mut self, module: Handle, name: String) -> Outcome<Handle> {
        self.current()?;
        let known = self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        let sizes = known.kernels.get(&name).ok_or(NOT_FOUND)?.clone();
        let function = Function { device: known.device, module, name, sizes };
        let handle = self.handle();
        self.functions.insert(handle, function);
        Ok(handle)
    }

    /// # Safety
    ///
    /// The request must contain the address of a value for each parameter that the kernel declares.
    pub(super) unsafe fn launch(&mut self, function: Handle, request: Request) -> Outcome {
        let current = self.current()?;
        let function = self.functions.get(&function).ok_or(INVALID_HANDLE)?.clone();
        let stream = self.find_stream(request.stream)?;
        if function.device != current || self.streams[&stream].device() != current {
            return Err(INVALID_HANDLE);
        }
        let threads = request.block.iter().try_fold(1u32, |all, &n| all.checked_mul(n)).unwrap_or(u32::MAX);
        if request.grid.contains(&0) || threads == 0 || threads > MAX_THREADS {
            return Err(INVALID_VALUE);
        }
        if request.has_extra {
            return Err(NOT_SUPPORTED);
        }
        if request.params.is_null() && !function.sizes.is_empty() {
            return Err(INVALID_VALUE);
        }
        let mut params = Vec::with_capacity(function.sizes.len());
        for (i, &size) in function.sizes.iter().enumerate() {
            let mut value = vec![0u64; size.div_ceil(8)];
            // SAFETY: the caller passes the address of a value for each declared parameter; the
            // vector has room for the size.
            unsafe { std::ptr::copy_nonoverlapping(*request.params.add(i), value.as_mut_ptr().cast(), size) };
            params.push(value);
        }
        let watches = self.watches.get(&function.name).map_or(&[][..], Vec::as_slice);
        let number = |i: usize| params.get(i).and_then(|value| value.first()).map(|&number| number as usize);
        let reads = watches.iter().map(|watch| {
            let bytes = number(watch.count)?.checked_mul(watch.unit)?;
            Some((number(watch.pointer)?, bytes))
        });
        let Some(reads) = reads.collect::<Option<Vec<_>>>() else {
            self.violation(format!("kernel {} is watched with parameters that it does not have", function.name));
            return Err(INVALID_VALUE);
        };
        let (grid, block) = (request.grid, request.block);
        self.enqueue_kernel(stream, function.name, params, grid, block, reads);
        Ok(())
    }

    /// See [`Fake::read_on`](crate::Fake::read_on).
    pub(super) fn read_on(&mut self, stream: Handle, start: usize, bytes: usize) -> Outcome {
        let stream = self.find_by_handle(stream)?;
        self.enqueue_kernel(stream, "reader".to_owned(), Vec::new(), [1; 3], [1; 3], vec![(start, bytes)]);
        Ok(())
    }

    fn enqueue_kernel(
        &mut self,
        stream: Handle,
        name: String,
        params: Vec<Vec<u64>>,
        grid: [u32; 3],
        block: [u32; 3],
        mut reads: Vec<(usize, usize)>,
    ) {
        reads.retain(|&(_, bytes)| bytes > 0);
        let device = self.streams[&stream].device();
        let steps_left = 1 + self.random.up_to(self.options.kernel_steps.max(1) - 1);
        let run = Run { name, device, params, grid, block, reads, seen: Vec::new(), steps_left };
        self.enqueue(stream, Work::Kernel(run));
    }

    pub(super) fn run_kernel(&mut self, run: &mut Run, place: Place<'_>, first: bool) -> bool {
        if let Some(problem) = run.reads.iter().find_map(|&(start, bytes)| self.check_range(start, bytes).err()) {
            self.violation(format!("kernel {} ({place}): {problem}", run.name));
            self.devices[run.device].broken = Some(ILLEGAL_ADDRESS);
            return true;
        }
        if first {
            run.seen = run.hashes();
        }
        run.steps_left -= 1;
        if run.steps_left > 0 {
            return false;
        }
        if run.hashes() != run.seen {
            self.violation(format!("kernel {} ({place}): the bytes that it reads changed while it ran", run.name));
        }
        if let Some(&HostFunction { run: function, user }) = self.kernels.get(&run.name) {
            let params: Vec<_> = run.params.iter_mut().map(|value| value.as_mut_ptr().cast::<c_void>()).collect();
            function(user as *mut c_void, params.as_ptr(), params.len(), run.grid.as_ptr(), run.block.as_ptr());
        }
        true
    }
}

/// Returns the kernels that PTX declares, with the sizes of their parameters in bytes, or `None` if
/// it cannot be parsed.
fn signatures(ptx: &str) -> Option<BTreeMap<String, Vec<usize>>> {
    let code: String = ptx.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    let mut kernels = BTreeMap::new();
    for entry in code.split(".entry").skip(1) {
        let end = entry.find(['(', '{', '.', ';'])?;
        let (name, rest) = entry.split_at(end);
        let params = match rest.strip_prefix('(') {
            Some(params) => params.split_once(')')?.0,
            None => "",
        };
        let declared = params.split(',').filter(|param| !param.trim().is_empty());
        kernels.insert(name.trim().to_owned(), declared.map(size).collect::<Option<_>>()?);
    }
    (!kernels.is_empty()).then_some(kernels)
}

/// Returns the size in bytes of a parameter such as `.param .u64 x` or `.param .align 8 .b8 x[16]`.
fn size(param: &str) -> Option<usize> {
    let bits = param.split_whitespace().find_map(|word| match word.as_bytes() {
        [b'.', b'u' | b's' | b'b' | b'f', ..] => word[2..].parse::<usize>().ok(),
        _ => None,
    })?;
    let array = param.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let many = array.map_or(Some(1), |(many, _)| many.trim().parse().ok())?;
    (bits / 8).checked_mul(many)
}

#[cfg(test)]
mod tests {
    use super::signatures;

    #[test]
    fn parameters_have_the_sizes_that_ptx_declares() {
        let ptx = "
            .version 8.0
            // .entry commented(.param .u8 x)
            .visible .entry add(
                .param .u64 .ptr .global .align 1 add_param_0, // where
                .param .u32 add_param_1,
                .param .align 8 .b8 add_param_2[24]
            )
            .maxntid 128, 1, 1
            { ret; }
            .entry none() { ret; }
            .entry bare { ret; }";
        let found = signatures(ptx).unwrap();
        let found: Vec<_> = found.iter().map(|(name, sizes)| (name.as_str(), sizes.as_slice())).collect();
        assert_eq!(found, [("add", &[8, 4, 24][..]), ("bare", &[]), ("none", &[])]);
        assert_eq!(signatures(".version 8.0"), None);
        assert_eq!(signatures(".entry broken(.param .u64 x"), None);
        assert_eq!(signatures(".entry broken(.param x) {}"), None);
    }
}
