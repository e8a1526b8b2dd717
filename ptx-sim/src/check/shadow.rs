//! What is known about the bytes of global memory: who wrote and read them in a launch.

use std::collections::HashMap;

/// Words of four bytes in a chunk of cells.
const CHUNK: u64 = 1024;

/// The accesses to one word of four bytes in the latest launch that touched it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cell {
    /// The launch, from 1; 0 for none.
    pub(crate) launch: u32,
    /// The last block that wrote it and its time then.
    pub(crate) writer: u32,
    pub(crate) wrote_at: u32,
    /// Which bytes that block wrote; 0 for no writer.
    pub(crate) written: u8,
    /// Which bytes were written by anyone in this launch.
    pub(crate) ever_written: u8,
    /// Whether the last write was an atomic operation.
    pub(crate) atomic: bool,
    /// Whether the last read was an ordered or volatile one.
    pub(crate) read_atomic: bool,
    /// Which bytes the last reader read; 0 for no reader.
    pub(crate) read: u8,
    /// The last block that read it and its time then.
    pub(crate) reader: u32,
    pub(crate) read_at: u32,
}

/// The cells of all memory that checked launches touched.
#[derive(Default)]
pub(crate) struct Cells {
    chunks: HashMap<u64, Box<[Cell]>>,
}

impl Cells {
    /// The cell of the word that `address` is in.
    pub(crate) fn cell(&mut self, address: u64) -> &mut Cell {
        let word = address / 4;
        let chunk = self
            .chunks
            .entry(word / CHUNK)
            .or_insert_with(|| vec![Cell::default(); CHUNK as usize].into_boxed_slice());
        &mut chunk[(word % CHUNK) as usize]
    }

    /// The cell of the word that `address` is in, if one was ever made.
    pub(crate) fn peek(&self, address: u64) -> Option<&Cell> {
        let word = address / 4;
        self.chunks.get(&(word / CHUNK)).map(|chunk| &chunk[(word % CHUNK) as usize])
    }
}

/// Calls `visit(address of the word, mask of its bytes)` for each word of four bytes that an access touches.
pub(crate) fn words(
    address: u64,
    bytes: u32,
    mut visit: impl FnMut(u64, u8) -> Result<(), super::Finding>,
) -> Result<(), super::Finding> {
    let end = address + u64::from(bytes);
    let mut at = address;
    while at < end {
        let word = at & !3;
        let (from, to) = (at - word, (end - word).min(4));
        let mask = ((1u32 << to) - (1u32 << from)) as u8;
        visit(word, mask)?;
        at = word + 4;
    }
    Ok(())
}
