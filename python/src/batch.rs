//! Batches in shared memory: how they are written, and how Python objects are made of them.
//!
//! A batch is sent as one block that describes it, and a separate block for each large tensor, so
//! that a program that keeps the labels of every batch does not keep the pictures as well. The
//! first block contains, in this order:
//!
//! | contents | bytes |
//! |---|---|
//! | six integers: the count of memory pieces that several tensors share, of all tensors, and of tensors inside pickled objects; the number that identifies the container structure; the length of its description, and of the pickled objects | 8 each |
//! | for each piece and tensor: its block or `u64::MAX`, offset, length, type, number of dimensions, the dimensions, and its strides if it has any. For a tensor in a piece: `u64::MAX - 1` as the block, and the piece's number as the length | 8 each |
//! | the pickled description of the containers, unless the receiver has said that it knows it | |
//! | the pickled objects, if there are any | |
//! | the small tensors, each at a multiple of [`ALIGN`] | |

use std::io;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCFunction, PyDict, PyList, PyTuple};

use crate::channel::{Block, BlockRef, Draft, Message, Receiver, Sender};
use crate::collate::{Gathered, Leaf, Rows, TorchApi};
use crate::dlpack::{DType, Owner, broken, size, span};
use crate::memory::ALIGN;
use crate::pool::Pool;
use crate::tree::Node;

/// Tensors of at least this many bytes get a separate block.
const LARGE: usize = 16 << 10;
/// Block number of a tensor that is in the same block as its description.
const HERE: u64 = u64::MAX;
/// Block number of a tensor that is in a piece of memory shared with other tensors.
const IN_PIECE: u64 = u64::MAX - 1;
/// A flag in a tensor's type: strides follow its dimensions.
const STRIDED: u64 = 1 << 32;

/// Makes a batch in memory of this process.
pub(crate) fn make_local<'py>(
    py: Python<'py>,
    api: &TorchApi,
    pool: &Pool,
    node: &Node,
    gathered: &mut Gathered<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    gathered.recheck(api)?;
    let make = |leaf: &Leaf| {
        let tensor = pool.take(py, &api.torch, leaf.dtype, &leaf.shape)?;
        if leaf.bytes > 0 {
            // SAFETY: the memory is new and large enough, and `gathered` keeps the samples alive.
            unsafe { leaf.write(api.torch.start(&tensor)?) };
        }
        Ok(tensor)
    };
    let tensors = gathered.leaves.iter().map(make).collect::<PyResult<Vec<_>>>()?;
    for (leaf, tensor) in gathered.leaves.iter().zip(&tensors).filter(|(leaf, _)| leaf.bytes > 0) {
        // SAFETY: as above, and no other code has references to the tensors yet.
        unsafe { leaf.paint(py, api.torch.start(tensor)?)? };
    }
    node.build(py, &tensors, &gathered.objects)
}

/// The structure of the last batch's containers, and its number. A different structure gets a
/// higher number.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    number: u64,
    node: Option<Node>,
}

/// Python's functions to pickle and unpickle.
pub(crate) struct Pickle {
    dumps: Py<PyAny>,
    loads: Py<PyAny>,
    /// The functions of `slotline.torch._workers.pickling`, for objects that may contain tensors.
    dumps_with: Py<PyAny>,
    loads_with: Py<PyAny>,
    /// A function that returns whether an object is a tensor that is sent without pickling it.
    is_sendable: Py<PyAny>,
    api: &'static TorchApi,
}

impl Pickle {
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        let pickle = py.import("pickle")?;
        let ours = py.import("slotline.torch._workers.pickling")?;
        let api = TorchApi::get(py)?;
        let is_sendable = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<bool> {
            Ok(api.is_sendable(&arguments.get_item(0)?))
        };
        Ok(Self {
            dumps: pickle.getattr("dumps")?.unbind(),
            loads: pickle.getattr("loads")?.unbind(),
            dumps_with: ours.getattr("dumps")?.unbind(),
            loads_with: ours.getattr("loads")?.unbind(),
            is_sendable: PyCFunction::new_closure(py, None, None, is_sendable)?.into_any().unbind(),
            api,
        })
    }

    /// Pickles the objects of a batch. Tensors inside them are added to the batch's tensors.
    fn objects<'py>(
        &self,
        py: Python<'py>,
        gathered: &mut Gathered<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, usize)>> {
        if gathered.objects.is_empty() {
            return Ok(None);
        }
        let list = PyList::new(py, &gathered.objects)?.into_any();
        if gathered.is_plain {
            return Ok(Some((self.dumps(&list)?, 0)));
        }
        gathered.ran = true;
        let pickled = self.dumps_with.bind(py).call1((list, &self.is_sendable))?;
        let (bytes, tensors) = pickled.extract::<(Bound<'py, PyBytes>, Vec<Bound<'py, PyAny>>)>()?;
        for tensor in &tensors {
            gathered.tensor(self.api, tensor).ok_or_else(|| broken("a tensor has changed meanwhile"))?;
        }
        Ok(Some((bytes, tensors.len())))
    }

    pub(crate) fn dumps<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(self.dumps.bind(object.py()).call1((object, 5))?.cast_into::<PyBytes>()?)
    }

    pub(crate) fn loads<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        self.loads.bind(py).call1((PyBytes::new(py, bytes),))
    }
}

/// Sends a batch, or another value, to which the memory limit does not apply. Returns `false` if
/// the receiver has closed the channel.
///
/// The description of the containers is sent until the receiver confirms that it knows it, since
/// the receiver may fail to read some batches.
pub(crate) fn send<'py>(
    py: Python<'py>,
    pickle: &Pickle,
    sender: &mut Sender,
    (message, is_batch): (Message, bool),
    node: Node,
    mut gathered: Gathered<'py>,
    last: &mut Containers,
) -> PyResult<bool> {
    if !last.node.as_ref().is_some_and(|last| last.is(&node, py)) {
        *last = Containers { number: last.number + 1, node: None };
    }
    let is_known = sender.known() == last.number;
    let shape = if is_known { None } else { Some(pickle.dumps(&node.describe(py)?)?) };
    last.node = Some(node);
    let (objects, inner) = pickle.objects(py, &mut gathered)?.unzip();
    let (shape, objects) = ((last.number, bytes_of(shape.as_ref())), bytes_of(objects.as_ref()));

    gathered.recheck(pickle.api)?;
    let pieces = gathered.pieces()?;
    let mut drafts = Vec::new();
    let sent =
        write(py, (sender, is_batch), shape, objects, [&pieces, &gathered.leaves], inner.unwrap_or(0), &mut drafts);
    let head = match sent {
        Ok(head) => head,
        Err(error) => {
            for draft in drafts {
                sender.discard(draft);
            }
            return Err(error.into());
        }
    };
    Ok(sender.send(message, Some(head)))
}

fn bytes_of<'a>(bytes: Option<&'a Bound<'_, PyBytes>>) -> &'a [u8] {
    bytes.map_or(&[], |bytes| bytes.as_bytes())
}

/// Writes a batch into blocks, and returns the first one. The other blocks are added to `drafts`.
fn write(
    py: Python<'_>,
    (sender, is_batch): (&mut Sender, bool),
    (containers, shape): (u64, &[u8]),
    objects: &[u8],
    [pieces, tensors]: [&[Leaf]; 2],
    inner: usize,
    drafts: &mut Vec<Draft>,
) -> io::Result<Draft> {
    let leaves = || pieces.iter().chain(tensors);
    let words: usize =
        6 + leaves().map(|leaf| 5 + leaf.shape.len() + leaf.strides.as_ref().map_or(0, Vec::len)).sum::<usize>();
    let mut end = words * 8 + shape.len() + objects.len();
    let mut at = Vec::with_capacity(words);
    at.extend([pieces.len(), tensors.len(), inner].map(|len| len as u64));
    at.extend([containers, shape.len() as u64, objects.len() as u64]);
    let (mut here, mut places) = (Vec::new(), Vec::new());
    if is_batch {
        let of_leaves = |total: usize, leaf: &Leaf| match leaf.bytes >= LARGE {
            _ if matches!(leaf.rows, Rows::Part(..)) => total,
            true => total + leaf.bytes,
            false => total.next_multiple_of(ALIGN) + leaf.bytes,
        };
        sender.admit(leaves().fold(end, of_leaves))?;
    }
    for leaf in leaves() {
        let mut len = leaf.bytes;
        let (block, offset) = if let Rows::Part(piece, offset) = leaf.rows {
            len = piece;
            (IN_PIECE, offset as u64)
        } else if leaf.bytes >= LARGE {
            let draft = sender.draft(leaf.bytes, is_batch)?;
            // SAFETY: the block belongs to this sender and is large enough, and the samples are
            // still alive.
            unsafe { leaf.write(draft.start.as_ptr()) };
            places.push((leaf, draft.start));
            let place = (u64::from(draft.place.block), draft.place.offset as u64);
            drafts.push(draft);
            place
        } else {
            let offset = end.next_multiple_of(ALIGN);
            end = offset + leaf.bytes;
            here.push((leaf, offset));
            (HERE, offset as u64)
        };
        let DType { code, bits, lanes } = leaf.dtype;
        let mut dtype = u64::from(code) | u64::from(bits) << 8 | u64::from(lanes) << 16;
        if leaf.strides.is_some() {
            dtype |= STRIDED;
        }
        at.extend([block, offset, len as u64, dtype, leaf.shape.len() as u64]);
        at.extend(leaf.shape.iter().chain(leaf.strides.iter().flatten()).map(|&dim| dim as u64));
    }
    let head = sender.draft(end, is_batch)?;
    let start = head.start.as_ptr();
    // SAFETY: the block belongs to this sender and has at least `end` bytes, where the last of
    // these copies ends.
    unsafe {
        start.copy_from_nonoverlapping(at.as_ptr().cast(), words * 8);
        start.add(words * 8).copy_from_nonoverlapping(shape.as_ptr(), shape.len());
        start.add(words * 8 + shape.len()).copy_from_nonoverlapping(objects.as_ptr(), objects.len());
        for (leaf, offset) in here {
            leaf.write(start.add(offset));
            places.push((leaf, head.start.add(offset)));
        }
    }
    for (leaf, start) in places {
        // SAFETY: the blocks belong to this sender and are large enough.
        if let Err(error) = unsafe { leaf.paint(py, start.as_ptr()) } {
            drafts.push(head);
            return Err(error.into());
        }
    }
    Ok(head)
}

/// Makes a batch from a block that was received.
pub(crate) fn receive<'py>(
    py: Python<'py>,
    api: &TorchApi,
    pickle: &Pickle,
    pool: &Pool,
    receiver: &Receiver,
    block: Block,
    last: &mut Containers,
) -> PyResult<Bound<'py, PyAny>> {
    let block = Arc::new(block);
    let bytes = block.bytes();
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    let mut read = 0;
    let mut next = || {
        read += 8;
        words.next().and_then(|word| usize::try_from(word).ok()).ok_or_else(|| broken("it is too short"))
    };
    let (pieces, count, inner) = (next()?, next()?, next()?);
    let (containers, shape_len, objects_len) = (next()? as u64, next()?, next()?);
    let mut tensors: Vec<Bound<'py, PyAny>> = Vec::with_capacity(count.min(bytes.len() / 40));
    let mut sizes = Vec::new();
    // Also after an error, all other blocks are taken, so that they are returned to the sender.
    let mut failure = None;
    for k in 0..pieces.saturating_add(count) {
        let (number, offset, len, dtype, ndim) = (next()?, next()?, next()?, next()?, next()?);
        let is_strided = dtype as u64 & STRIDED != 0;
        let dtype = DType { code: dtype as u8, bits: (dtype >> 8) as u8, lanes: (dtype >> 16) as u16 };
        if ndim > bytes.len() / 8 {
            return Err(broken("it is too short"));
        }
        let shape = (0..ndim).map(|_| Ok(next()? as i64)).collect::<PyResult<Vec<_>>>()?;
        let strides = match is_strided {
            true => Some((0..ndim).map(|_| Ok(next()? as i64)).collect::<PyResult<Vec<_>>>()?),
            false => None,
        };
        let dims = (&shape[..], strides.as_deref());
        let bytes_of = strides.as_ref().map_or_else(|| size(&shape, dtype), |strides| span(&shape, strides, dtype));
        let bytes_of = bytes_of.ok_or_else(|| broken("a tensor has no size"))?;
        if number as u64 == IN_PIECE {
            if failure.is_some() {
                continue;
            }
            let piece = tensors.get(len).zip(sizes.get(len));
            let piece = piece.filter(|&(_, &size)| offset.checked_add(bytes_of).is_some_and(|end| end <= size));
            let (piece, _) = piece.ok_or_else(|| broken("a tensor is outside of its memory"))?;
            let part = api.torch.part(piece, offset, dtype, dims)?;
            tensors.push(part);
            continue;
        }
        if bytes_of != len {
            return Err(broken("a tensor has another size than its shape"));
        }
        if k < pieces {
            sizes.push(len);
        }
        let (data, owner) = if number as u64 == HERE {
            if offset.checked_add(len).is_none_or(|end| end > bytes.len()) || !offset.is_multiple_of(ALIGN) {
                return Err(broken("a tensor is outside of its memory"));
            }
            // SAFETY: the range was checked above.
            (unsafe { block.start().add(offset) }, Owner::Block(block.clone()))
        } else {
            let number = u32::try_from(number).map_err(|_| broken("it has no such block"))?;
            match receiver.block(BlockRef { block: number, offset, len }) {
                Ok(own) => (own.start(), Owner::Block(Arc::new(own))),
                Err(error) => {
                    failure.get_or_insert(error);
                    continue;
                }
            }
        };
        tensors.push(match receiver.is_crowded() {
            false => {
                if let Owner::Block(block) = &owner {
                    block.expose();
                }
                // SAFETY: the memory has the tensor's bytes, and the worker does not write there
                // until the block is returned.
                unsafe { api.torch.make(py, data.as_ptr(), dtype, dims, owner) }?
            }
            true => {
                let copy = pool.take(py, &api.torch, DType::U8, &[len as i64])?;
                if len > 0 {
                    // SAFETY: source and target have `len` bytes.
                    unsafe { api.torch.start(&copy)?.copy_from_nonoverlapping(data.as_ptr(), len) };
                }
                api.torch.part(&copy, 0, dtype, dims)?
            }
        });
    }
    if let Some(error) = failure {
        return Err(error.into());
    }
    tensors.drain(..pieces.min(tensors.len()));
    let mut part = |len: usize| {
        let part = bytes.get(read..).and_then(|rest| rest.get(..len)).ok_or_else(|| broken("it is too short"));
        read += len;
        part
    };
    let (shape, objects) = (part(shape_len)?, part(objects_len)?);
    if containers != last.number {
        let node = Node::read(&pickle.loads(py, shape)?)?;
        *last = Containers { number: containers, node: Some(node) };
        receiver.know(containers);
    }
    let objects = match objects {
        [] => Vec::new(),
        _ if inner == 0 => pickle.loads(py, objects)?.extract::<Vec<Bound<'py, PyAny>>>()?,
        _ => {
            let outer = tensors.len().checked_sub(inner).ok_or_else(|| broken("it lacks tensors"))?;
            let tensors = PyList::new(py, tensors.drain(outer..))?;
            pickle.loads_with.bind(py).call1((PyBytes::new(py, objects), tensors))?.extract()?
        }
    };
    let node = last.node.as_ref().ok_or_else(|| broken("it says nothing about its containers"))?;
    node.build(py, &tensors, &objects)
}
