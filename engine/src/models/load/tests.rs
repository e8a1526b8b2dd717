//! Loading from sources of a few tensors, without a model.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use super::loader::load;
use super::{LoadError, Loader};
use crate::config::ModelConfig;
use crate::device::{Device, DeviceSpec};
use crate::engine::Engine;
use crate::format::mmap::FileMap;
use crate::format::{DType, FormatError, Stored, TensorInfo, TensorSource};
use crate::kernel::{RawTensor, TensorFormat};
use crate::options::EngineOptions;

/// Tensors one behind the other in one file, or in memory.
struct Given {
    tensors: Vec<TensorInfo>,
    starts: Vec<usize>,
    map: FileMap,
}

/// Bytes that differ from their neighbours; finite as floats of any type (no exponent of ones).
fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8 & 0x3f).collect()
}

impl Given {
    fn new(tensors: &[(&str, DType, &[u64])]) -> (Given, Vec<u8>) {
        let info = |&(name, dtype, shape): &(&str, DType, &[u64])| TensorInfo {
            name: name.to_owned(),
            shape: shape.to_vec(),
            dtype,
        };
        let tensors: Vec<TensorInfo> = tensors.iter().map(info).collect();
        let (mut starts, mut bytes) = (Vec::new(), Vec::new());
        for (seed, info) in tensors.iter().enumerate() {
            starts.push(bytes.len());
            bytes.extend(pattern(info.bytes() as usize, seed as u32));
        }
        (Given { tensors, starts, map: FileMap::from_vec(bytes.clone()) }, bytes)
    }

    /// The same, read from a file.
    fn in_file(mut self, bytes: &[u8]) -> (Given, tempfile::NamedTempFile) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        self.map = FileMap::open(file.path()).unwrap();
        (self, file)
    }

    fn index(&self, name: &str) -> usize {
        self.tensors.iter().position(|info| info.name == name).unwrap()
    }

    fn bytes(&self, name: &str) -> &[u8] {
        let index = self.index(name);
        &self.map[self.starts[index]..][..self.tensors[index].bytes() as usize]
    }

    fn total(&self) -> u64 {
        self.tensors.iter().map(TensorInfo::bytes).sum()
    }
}

impl TensorSource for Given {
    fn path(&self) -> &Path {
        Path::new("given")
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn find(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|info| info.name == name)
    }

    fn data(&self, name: &str) -> Result<Cow<'_, [u8]>, FormatError> {
        Ok(Cow::Borrowed(self.bytes(name)))
    }

    fn stored(&self, name: &str) -> Result<Stored<'_>, FormatError> {
        let index = self.index(name);
        let len = self.tensors[index].bytes() as usize;
        let path = self.map.path().unwrap_or(self.path());
        Ok(Stored::in_file(&self.map, self.starts[index], len, path, name))
    }

    fn config(&self) -> Result<ModelConfig, FormatError> {
        unreachable!("no model is built from it")
    }
}

fn engine() -> Engine {
    Engine::new(Device::open(DeviceSpec::Sim(0)).unwrap(), EngineOptions::default()).unwrap()
}

fn planes(tensor: &RawTensor) -> Vec<Vec<u8>> {
    tensor.planes().iter().map(|plane| plane.clone().typed::<u8>().unwrap().to_vec().unwrap()).collect()
}

#[test]
fn matrices_of_many_pieces_arrive_whole_and_in_their_places() {
    const COLS: u64 = 2048;
    let shapes: [(&str, DType, &[u64]); 5] = [
        ("a.weight", DType::Q4_1, &[5000, COLS]),
        ("b.weight", DType::Q4_1, &[3, COLS]),
        ("c.weight", DType::Q4_1, &[2500, COLS]),
        ("d.weight", DType::Bf16, &[1500, COLS]),
        ("e", DType::F32, &[3, 7 << 18]), // a row has more bytes than a piece
    ];
    let (source, bytes) = Given::new(&shapes);
    let total = source.total();
    let (source, _file) = source.in_file(&bytes);
    let engine = engine();
    let mut told = Vec::new();
    let part = |name: &str, rows: u32| (name.to_owned(), rows);
    let (loaded, timings) =
        load(&engine, &source, total, &mut |done, all| told.push((done, all)), |loader| {
            let abc = [part("a.weight", 5000), part("b.weight", 3), part("c.weight", 2500)];
            Ok((
                loader.stacked_padded(&abc, COLS as u32)?,
                loader.stacked(&[part("d.weight", 1500)], COLS as u32)?,
                loader.matrix("e", 3, 7 << 18)?,
            ))
        })
        .unwrap();
    let (stacked, plain, wide) = loaded;
    let [stacked] = &stacked.0[..] else { panic!("one format, one tensor") };
    assert_eq!((stacked.format(), stacked.rows()), (TensorFormat::Q4_1, 7504));
    // Blocks of 20 bytes: scale and minimum, then 16 bytes of integers. One row of zeros makes the rows a multiple of 8.
    let blocks: Vec<&[u8]> =
        ["a.weight", "b.weight", "c.weight"].iter().flat_map(|name| source.bytes(name).chunks(20)).collect();
    let zeros = |bytes: usize| vec![0; bytes * COLS as usize / 32];
    let qs = [blocks.iter().flat_map(|block| block[4..].to_vec()).collect(), zeros(16)].concat();
    let dm = [blocks.iter().flat_map(|block| block[..4].to_vec()).collect(), zeros(4)].concat();
    assert!(planes(stacked) == [qs, dm]);
    assert!(planes(&plain.0[0]) == [source.bytes("d.weight")]);
    assert!(planes(&wide) == [source.bytes("e")]);

    assert_eq!(timings.stored_bytes, total);
    assert_eq!(timings.device_bytes, total + 20 * COLS / 32);
    assert!(told.is_sorted() && told.iter().all(|(done, all)| done <= all), "{told:?}");
    assert_eq!(told.last(), Some(&(total, total)));
    // Two buffers a thread, each of the power of two above a piece, or above a row.
    assert!(timings.pinned_bytes <= timings.threads as u64 * 2 * (16 << 20), "{timings:?}");
    assert!(timings.to_string().contains("GB/s"), "{timings}");
}

#[test]
fn progress_counts_bytes_of_the_source_where_the_device_has_more() {
    let shapes: [(&str, DType, &[u64]); 4] = [
        ("x.weight", DType::F8_E4M3, &[1024, 2048]),
        ("x.weight_scale_inv", DType::F32, &[8, 16]),
        ("y", DType::Bf16, &[64]),
        ("z.weight", DType::Bf16, &[48, 64]),
    ];
    let (source, _) = Given::new(&shapes);
    let total = source.total();
    let mut told = Vec::new();
    let (x, timings) = load(&engine(), &source, total, &mut |done, all| told.push((done, all)), |loader| {
        let x = loader.matrix("x.weight", 1024, 2048)?;
        loader.vector("y", 64)?;
        loader.keys_and_values("z.weight", 2, 16, 8, 64)?;
        Ok(x)
    })
    .unwrap();
    assert_eq!(x.format(), TensorFormat::F32);
    assert_eq!(timings.stored_bytes, total, "each byte once");
    assert!(told.is_sorted() && told.iter().all(|&(done, all)| done <= all && all == total), "{told:?}");
    assert_eq!(told.last(), Some(&(total, total)));
    // 100·e4m3 of the pattern's bytes, times the scale of their block of 128 × 128.
    let codes = source.bytes("x.weight");
    let scales = source.bytes("x.weight_scale_inv").as_chunks::<4>().0;
    let plane = planes(&x).remove(0);
    for (i, value) in plane.as_chunks::<4>().0.iter().enumerate() {
        let scale = f32::from_le_bytes(scales[i / 2048 / 128 * 16 + i % 2048 / 128]);
        let due = crate::device::F8E4M3(codes[i]).to_f32() * scale;
        assert_eq!(f32::from_le_bytes(*value), due, "element {i}");
    }
}

/// Loads all matrices of a source, in a file that loses its end after it was opened.
fn from_a_shortened_file(
    count: usize,
    body: impl Fn(&mut Loader<'_>, usize) -> Result<(), LoadError>,
) -> LoadError {
    let names: Vec<String> = (0..count).map(|i| format!("m{i}.weight")).collect();
    let shapes: Vec<(&str, DType, &[u64])> =
        names.iter().map(|name| (name.as_str(), DType::Q8_0, &[600u64, 4096][..])).collect();
    let (source, bytes) = Given::new(&shapes);
    let total = source.total();
    let (source, file) = source.in_file(&bytes);
    file.as_file().set_len(total / 2 + 1).unwrap();
    let loaded = load(&engine(), &source, total, &mut |_, _| {}, |loader| {
        (0..count).try_for_each(|i| body(loader, i))
    });
    let error = loaded.unwrap_err();
    if let LoadError::Format(FormatError::Read { path, .. }) = &error {
        assert_eq!(path, file.path());
    }
    error
}

#[test]
fn a_file_that_loses_its_end_is_an_error_with_file_and_tensor() {
    // Few, so that all are handed over before the first failure; and many, so that the threads fail while more is to come.
    for count in [2, 24] {
        let error = from_a_shortened_file(count, |loader, i| {
            loader.matrix(&format!("m{i}.weight"), 600, 4096).map(drop)
        });
        let text = error.to_string();
        assert!(matches!(error, LoadError::Format(FormatError::Read { .. })), "{text}");
        // Any of those that are not there any more: threads race for them.
        let gone = |i: usize| text.contains(&format!("`m{i}.weight`: cannot be read"));
        assert!((count / 2..count).any(gone), "{text}");
    }
}

#[test]
fn what_is_wrong_on_this_side_ends_the_threads_too() {
    let error = from_a_shortened_file(8, |loader, i| match i {
        0..3 => loader.matrix(&format!("m{i}.weight"), 600, 4096).map(drop),
        _ => loader.matrix("m3.weight", 600, 4095).map(drop),
    });
    let text = error.to_string();
    assert!(
        text.contains("m3.weight") && text.contains("[600, 4096]") && text.contains("[600, 4095]"),
        "{text}"
    );
}
