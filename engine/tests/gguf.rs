//! Well-formed GGUF files, whole and split, read back as they were written.

use std::path::Path;

use bitwalk::format::gguf::{GgufFile, GgufWriter, Value};
use bitwalk::format::{DType, FormatError, TensorInfo, TensorSource};

#[test]
fn what_was_written_is_read() {
    let mut writer = GgufWriter::new();
    writer.str("general.architecture", "llama");
    writer.u32("llama.block_count", 30);
    writer.f32("eps", 1e-5);
    writer.bool("flag", true);
    writer.strings("tokens", &["a", "", "ü"]);
    writer.i32s("types", &[1, -3]);
    writer.f32s("scores", &[0.5]);
    writer.tensor("m", &[2, 3], DType::F32, bytemuck::cast_slice(&[1f32, 2., 3., 4., 5., 6.]));
    writer.tensor("q", &[4, 32], DType::Q8_0, &[7; 4 * 34]);
    let file = GgufFile::from_bytes("memory", writer.finish()).unwrap();

    assert_eq!((file.version(), file.parts()), (3, 1));
    let info = TensorInfo { name: "m".into(), shape: vec![2, 3], dtype: DType::F32 };
    assert_eq!(file.tensors()[0], info);
    assert_eq!((info.rows(), info.cols(), info.bytes()), (2, 3, 24));
    let m: Vec<f32> = file.bytes("m").unwrap().as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
    assert_eq!(m, [1., 2., 3., 4., 5., 6.]);
    assert_eq!(file.bytes("q").unwrap(), [7; 4 * 34]);
    assert_eq!(file.require("q", &[4, 32]).unwrap().dtype, DType::Q8_0);

    let metadata = file.metadata();
    let keys: Vec<&str> = metadata.iter().map(|(key, _)| key).collect();
    assert_eq!(
        keys,
        ["general.architecture", "llama.block_count", "eps", "flag", "tokens", "types", "scores"]
    );
    assert_eq!(metadata.get("llama.block_count"), Some(Value::Unsigned(30)));
    assert_eq!(metadata.require_u32("llama.block_count").unwrap(), 30);
    assert_eq!(metadata.require_f32("eps").unwrap(), 1e-5);
    assert_eq!(metadata.get("eps").unwrap().to_string(), "1e-5");
    assert_eq!(metadata.bool("flag").unwrap(), Some(true));
    assert_eq!(metadata.require_strings("tokens").unwrap(), ["a", "", "ü"]);
    assert_eq!(metadata.integers("types").unwrap().unwrap(), [1, -3]);
    assert_eq!(metadata.floats("scores").unwrap().unwrap(), [0.5]);
    assert_eq!(metadata.u32("absent").unwrap(), None);
}

#[test]
fn what_is_not_there_is_named() {
    let mut writer = GgufWriter::new();
    writer.str("name", "x");
    writer.tensor("m", &[2, 3], DType::F32, &[0; 24]);
    let file = GgufFile::from_bytes("some.gguf", writer.finish()).unwrap();
    let text = |error: FormatError| error.to_string();

    assert_eq!(text(file.bytes("n").unwrap_err()), "some.gguf: tensor `n`: is missing");
    assert_eq!(
        text(file.require("m", &[3, 2]).unwrap_err()),
        "some.gguf: tensor `m`: has shape [2, 3], but the model's configuration asks for [3, 2] (rows first)"
    );
    assert_eq!(
        text(file.metadata().require_u32("name").unwrap_err()),
        "some.gguf: metadata key `name`: is \"x\", but an integer from 0 to 4294967295 is wanted"
    );
    assert_eq!(
        text(file.metadata().require_u32("layers").unwrap_err()),
        "some.gguf: metadata key `layers`: is missing, and the model needs it"
    );
}

fn write_part(folder: &Path, number: u16, count: u16, tensor: &str) -> std::path::PathBuf {
    let mut writer = GgufWriter::new();
    writer.u32("split.no", number.into());
    writer.u32("split.count", count.into());
    writer.u32("split.tensors.count", count.into());
    if number == 0 {
        writer.str("general.architecture", "llama");
    }
    writer.tensor(tensor, &[1, 8], DType::I8, &[number as u8; 8]);
    let path = folder.join(format!("model-{:05}-of-{count:05}.gguf", number + 1));
    std::fs::write(&path, writer.finish()).unwrap();
    path
}

#[test]
fn a_split_model_opens_from_any_part() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3).map(|i| write_part(folder.path(), i, 3, &format!("t{i}"))).collect();
    for path in &paths {
        let file = GgufFile::open(path).unwrap();
        assert_eq!(file.parts(), 3);
        assert_eq!(file.path(), paths[0]);
        assert_eq!(file.metadata().require_str("general.architecture").unwrap(), "llama");
        for i in 0..3 {
            assert_eq!(file.bytes(&format!("t{i}")).unwrap(), [i as u8; 8]);
        }
    }
}

#[test]
fn an_absent_part_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3).map(|i| write_part(folder.path(), i, 3, &format!("t{i}"))).collect();
    std::fs::remove_file(&paths[2]).unwrap();
    let error = GgufFile::open(&paths[1]).unwrap_err().to_string();
    let absent = paths[2].display();
    assert_eq!(error, format!("{absent}: split model: part 3 of 3 is absent; put it beside the others"));
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_part(folder.path(), 0, 2, "same");
    let second = write_part(folder.path(), 1, 2, "same");
    let error = GgufFile::open(&first).unwrap_err().to_string();
    assert_eq!(error, format!("{}: tensor `same`: appears a second time", second.display()));

    std::fs::copy(&first, &second).unwrap();
    let error = GgufFile::open(&first).unwrap_err().to_string();
    assert!(error.contains("by its name part 2 of 2, but its metadata says part 1 of 2"), "{error}");

    let renamed = folder.path().join("renamed.gguf");
    std::fs::rename(&first, &renamed).unwrap();
    let error = GgufFile::open(&renamed).unwrap_err().to_string();
    assert!(error.contains("its name must end in `-00001-of-00002.gguf`"), "{error}");
}
