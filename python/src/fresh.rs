//! Memory of this process for batches, which is used again.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

use crate::memory::ALIGN;

/// Blocks smaller than this come from the allocator, which is quick for them.
const LARGE: usize = 64 << 10;
/// How many blocks wait to be used again.
const MOST: usize = 4;

/// Memory of which nobody has read anything yet.
#[derive(Debug)]
pub(crate) struct Fresh {
    start: NonNull<u8>,
    layout: Layout,
    pool: Weak<Pool>,
}

// SAFETY: it owns its memory.
unsafe impl Send for Fresh {}
// SAFETY: see above.
unsafe impl Sync for Fresh {}

impl Fresh {
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade().filter(|_| self.layout.size() >= LARGE) {
            // A process that was forked while another thread held the lock would wait for it forever.
            if let Ok(mut blocks) = pool.0.try_lock()
                && blocks.len() < MOST
            {
                blocks.push(Spare { start: self.start, layout: self.layout });
                return;
            }
        }
        drop(Spare { start: self.start, layout: self.layout });
    }
}

/// A block that nobody uses.
#[derive(Debug)]
struct Spare {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory.
unsafe impl Send for Spare {}

impl Drop for Spare {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nobody else has it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Blocks that nobody uses. A new one of many megabytes would cost its page faults.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<Spare>>);

impl Pool {
    /// Takes a block of `len` bytes.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Arc<Fresh> {
        let layout =
            Layout::from_size_align(len.max(1).next_multiple_of(ALIGN), ALIGN).expect("a batch fits in memory");
        let spare = self.0.try_lock().ok().and_then(|mut blocks| {
            let found = blocks.iter().position(|spare| spare.layout == layout);
            if found.is_none() && layout.size() >= LARGE && blocks.len() == MOST {
                // A size that is not asked for any more is let go.
                blocks.remove(0);
            }
            found.map(|found| blocks.swap_remove(found))
        });
        let start = match spare {
            Some(spare) => std::mem::ManuallyDrop::new(spare).start,
            None => {
                // SAFETY: the size is not zero.
                let start = unsafe { alloc(layout) };
                NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
            }
        };
        Arc::new(Fresh { start, layout, pool: Arc::downgrade(self) })
    }
}
