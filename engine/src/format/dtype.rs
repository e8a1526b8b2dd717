//! The element and block types that a tensor may have on disk.

/// How a tensor's elements are stored.
///
/// All types that ggml numbers are named here, and those of safetensors, those bitwalk cannot run included, so that a
/// file that holds one can be listed and refused by name. Types are grouped in *blocks* along a row: a block of
/// [`block_len`](Self::block_len) elements takes [`block_bytes`](Self::block_bytes) bytes, and a row is a
/// whole number of blocks. Plain element types are blocks of one.
///
/// Numbers and sizes: ggml's `enum ggml_type` and `type_traits` (`ggml.h`, `ggml-common.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(non_camel_case_types, missing_docs)] // the field's own names; each is described by `table`
pub enum DType {
    F32,
    F16,
    Bf16,
    F64,
    I8,
    I16,
    I32,
    I64,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    Iq1_S,
    Iq1_M,
    Iq2_Xxs,
    Iq2_Xs,
    Iq2_S,
    Iq3_Xxs,
    Iq3_S,
    Iq4_Nl,
    Iq4_Xs,
    Tq1_0,
    Tq2_0,
    Mxfp4,
    /// An 8-bit float, [`F8E4M3`](crate::device::F8E4M3); safetensors only.
    F8_E4M3,
    /// Bytes; safetensors only, where they mostly hold packed elements of 4 bits.
    U8,
}

/// (type, ggml's number, name, elements a block, bytes a block)
type Row = (DType, u32, &'static str, u32, u32);

/// In place of ggml's number where it gives none.
const NOT_GGML: u32 = u32::MAX;

const TABLE: [Row; 34] = [
    (DType::F32, 0, "F32", 1, 4),
    (DType::F16, 1, "F16", 1, 2),
    (DType::Bf16, 30, "BF16", 1, 2),
    (DType::F64, 28, "F64", 1, 8),
    (DType::I8, 24, "I8", 1, 1),
    (DType::I16, 25, "I16", 1, 2),
    (DType::I32, 26, "I32", 1, 4),
    (DType::I64, 27, "I64", 1, 8),
    (DType::Q4_0, 2, "Q4_0", 32, 18),
    (DType::Q4_1, 3, "Q4_1", 32, 20),
    (DType::Q5_0, 6, "Q5_0", 32, 22),
    (DType::Q5_1, 7, "Q5_1", 32, 24),
    (DType::Q8_0, 8, "Q8_0", 32, 34),
    (DType::Q8_1, 9, "Q8_1", 32, 36),
    (DType::Q2_K, 10, "Q2_K", 256, 84),
    (DType::Q3_K, 11, "Q3_K", 256, 110),
    (DType::Q4_K, 12, "Q4_K", 256, 144),
    (DType::Q5_K, 13, "Q5_K", 256, 176),
    (DType::Q6_K, 14, "Q6_K", 256, 210),
    (DType::Q8_K, 15, "Q8_K", 256, 292),
    (DType::Iq1_S, 19, "IQ1_S", 256, 50),
    (DType::Iq1_M, 29, "IQ1_M", 256, 56),
    (DType::Iq2_Xxs, 16, "IQ2_XXS", 256, 66),
    (DType::Iq2_Xs, 17, "IQ2_XS", 256, 74),
    (DType::Iq2_S, 22, "IQ2_S", 256, 82),
    (DType::Iq3_Xxs, 18, "IQ3_XXS", 256, 98),
    (DType::Iq3_S, 21, "IQ3_S", 256, 110),
    (DType::Iq4_Nl, 20, "IQ4_NL", 32, 18),
    (DType::Iq4_Xs, 23, "IQ4_XS", 256, 136),
    (DType::Tq1_0, 34, "TQ1_0", 256, 54),
    (DType::Tq2_0, 35, "TQ2_0", 256, 66),
    (DType::Mxfp4, 39, "MXFP4", 32, 17),
    (DType::F8_E4M3, NOT_GGML, "F8_E4M3", 1, 1),
    (DType::U8, NOT_GGML, "U8", 1, 1),
];

impl DType {
    /// Every type, in the order of declaration.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|row| row.0)
    }

    /// The type that ggml gives this number, if it gives it to one.
    pub fn from_ggml(number: u32) -> Option<DType> {
        TABLE.iter().find(|row| row.1 == number && number != NOT_GGML).map(|row| row.0)
    }

    /// ggml's number for this type, if it gives it one.
    pub fn ggml(self) -> Option<u32> {
        Some(self.row().1).filter(|&number| number != NOT_GGML)
    }

    /// The name by which model files and tools know it, such as `Q4_1`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Elements in a block.
    pub fn block_len(self) -> usize {
        self.row().3 as usize
    }

    /// Bytes in a block.
    pub fn block_bytes(self) -> usize {
        self.row().4 as usize
    }

    /// Bytes of a row of `cols` elements; `None` if `cols` is no whole number of blocks, or on overflow.
    pub fn row_bytes(self, cols: u64) -> Option<u64> {
        let len = self.block_len() as u64;
        if !cols.is_multiple_of(len) {
            return None;
        }
        (cols / len).checked_mul(self.block_bytes() as u64)
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, i, "{}", row.2);
            assert_eq!(DType::from_ggml(row.1), row.0.ggml().map(|_| row.0));
            assert_eq!(row.0.name().to_ascii_lowercase(), format!("{:?}", row.0).to_ascii_lowercase());
        }
        assert_eq!(DType::from_ggml(250), None);
        // 4 and 5 were Q4_2 and Q4_3, long removed.
        assert_eq!(DType::from_ggml(4), None);
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(DType::Q4_1.row_bytes(576), Some(18 * 20));
        assert_eq!(DType::Q4_1.row_bytes(575), None);
        assert_eq!(DType::Bf16.row_bytes(7), Some(14));
        assert_eq!(DType::F64.row_bytes(u64::MAX), None);
    }
}
