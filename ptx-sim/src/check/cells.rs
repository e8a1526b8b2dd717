//! Tables of what is known about memory, one cell a word, or a smaller unit where smaller accesses were made.

/// Bytes that a chunk of cells is about, as a power of two.
const CHUNK_BITS: u32 = 12;
/// The largest unit: a word of four bytes.
const WORD_BITS: u32 = 2;

struct Chunk<C> {
    /// Bytes of a cell's unit, as a power of two.
    unit: u32,
    cells: Box<[C]>,
}

impl<C: Copy + Default> Chunk<C> {
    fn new() -> Chunk<C> {
        let cells = vec![C::default(); 1 << (CHUNK_BITS - WORD_BITS)].into_boxed_slice();
        Chunk { unit: WORD_BITS, cells }
    }

    /// Goes on with smaller units, each of which inherits what is known about the whole.
    fn refine(&mut self, unit: u32) {
        let factor = 1usize << (self.unit - unit);
        self.cells = self.cells.iter().flat_map(|&cell| std::iter::repeat_n(cell, factor)).collect();
        self.unit = unit;
    }
}

/// The cells of one allocation, or of a block's shared memory; made as they are touched.
pub(crate) struct Cells<C> {
    chunks: Vec<Option<Chunk<C>>>,
}

impl<C> Default for Cells<C> {
    fn default() -> Cells<C> {
        Cells { chunks: Vec::new() }
    }
}

/// An access's chunk, and the unit that its place and size allow.
fn place(offset: u64, bytes: u32) -> (usize, u32) {
    let unit = (offset | u64::from(bytes)).trailing_zeros().min(WORD_BITS);
    ((offset >> CHUNK_BITS) as usize, unit)
}

/// The cells of a chunk that an access touches.
fn range(offset: u64, bytes: u32, unit: u32) -> std::ops::Range<usize> {
    let within = offset & ((1 << CHUNK_BITS) - 1);
    (within >> unit) as usize..((within + u64::from(bytes)) >> unit) as usize
}

impl<C: Copy + Default> Cells<C> {
    /// The cells of an access, which is aligned to its size of 1, 2, 4, 8 or 16 bytes.
    #[inline(always)]
    pub(crate) fn touched(&mut self, offset: u64, bytes: u32) -> &mut [C] {
        let (index, unit) = place(offset, bytes);
        if index >= self.chunks.len() {
            self.chunks.resize_with(index + 1, || None);
        }
        let chunk = self.chunks[index].get_or_insert_with(Chunk::new);
        if unit < chunk.unit {
            chunk.refine(unit);
        }
        &mut chunk.cells[range(offset, bytes, chunk.unit)]
    }

    /// The cells of an access, where there are any; units as they are, so the first and last may be about more.
    pub(crate) fn seen(&self, offset: u64, bytes: u32) -> &[C] {
        let Some(Some(chunk)) = self.chunks.get((offset >> CHUNK_BITS) as usize) else { return &[] };
        let whole = (1u64 << chunk.unit) - 1;
        let start = offset & !whole;
        let end = (offset + u64::from(bytes) + whole) & !whole;
        &chunk.cells[range(start, (end - start) as u32, chunk.unit)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_smallest_access() {
        let mut cells = Cells::<u8>::default();
        assert!(cells.seen(4096, 16).is_empty());
        cells.touched(4096 + 16, 16).copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(cells.seen(4096 + 22, 1), [2]);
        cells.touched(4096 + 22, 2)[0] = 9;
        assert_eq!(cells.touched(4096 + 16, 16), [1, 1, 2, 9, 3, 3, 4, 4]);
        cells.touched(4096 + 23, 1)[0] = 7;
        assert_eq!(cells.touched(4096 + 20, 4), [2, 2, 9, 7]);
        assert_eq!(cells.touched(8192 - 8, 8).len(), 8);
        assert_eq!(cells.touched(0, 8), [0, 0]);
    }
}
