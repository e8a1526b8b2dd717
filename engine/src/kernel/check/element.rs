//! Elements whose type is known by name only: filling, widening and comparing them.

use std::fmt;
use std::marker::PhantomData;

use half::{bf16, f16};

use super::random::Random;
use crate::device::F8E4M3;
use crate::kernel::{Fill, HostArg, HostElement};

/// What can be done with elements of a type.
pub(super) trait Codec: Sync {
    /// The type's name.
    fn name(&self) -> &'static str;
    /// How many elements so many bytes are.
    fn count(&self, bytes: usize) -> usize;
    /// `len` elements for an input, as bytes.
    fn fill(&self, fill: Option<&Fill>, len: usize, random: Random) -> Result<Vec<u8>, String>;
    /// The elements as a reference's input.
    fn input(&self, bytes: &[u8]) -> HostArg;
    /// The elements as the initial values of something that a reference reads and writes.
    fn initial(&self, bytes: &[u8]) -> HostArg;
    /// An output of `len` elements with every byte `poison`.
    fn poisoned(&self, len: usize, poison: u8) -> HostArg;
    /// Compares two runs of a kernel, from different poisons, with two of the reference.
    fn compare(&self, kind: Output, runs: &mut [Run<'_>; 2]) -> Result<Compared, Mismatch>;
}

/// What the kernel may do with a buffer that it writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Output {
    /// Only write: it held poison before.
    Written,
    /// Read and write: it held the same values before both runs.
    Updated,
}

/// A buffer before and after a launch, and after the reference.
pub(super) struct Run<'a> {
    pub before: &'a [u8],
    pub after: &'a [u8],
    pub reference: &'a mut HostArg,
}

/// What a comparison found.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Compared {
    /// Elements that the reference wrote.
    pub elements: u64,
    /// The largest |got − reference|, over the largest |reference|.
    pub worst: f64,
    /// Where.
    pub index: usize,
    /// What the kernel gave there.
    pub got: f64,
    /// What the reference gave there.
    pub wanted: f64,
}

/// An element that no tolerance excuses.
#[derive(Debug)]
pub(super) struct Mismatch {
    pub index: usize,
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "element {}: {}", self.index, self.what)
    }
}

struct Of<T>(PhantomData<fn() -> T>);

/// The codec of the element called `name`.
pub(super) fn codec(name: &str) -> Option<&'static dyn Codec> {
    macro_rules! find {
        ($($ty:ty)*) => {
            $(if name == <$ty as crate::device::Element>::NAME {
                return Some(&Of::<$ty>(PhantomData));
            })*
        };
    }
    find!(f32 f64 f16 bf16 F8E4M3 u8 i8 u16 i16 u32 i32 u64 i64);
    None
}

impl<T: HostElement> Of<T> {
    fn elements(bytes: &[u8]) -> Vec<T> {
        bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    fn value(value: T::Reference) -> String {
        if T::IS_FLOAT { format!("{:e}", T::number(value)) } else { format!("{value:?}") }
    }
}

impl<T: HostElement> Codec for Of<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn count(&self, bytes: usize) -> usize {
        bytes / size_of::<T>()
    }

    fn fill(&self, fill: Option<&Fill>, len: usize, random: Random) -> Result<Vec<u8>, String> {
        let values: Vec<T> = match fill {
            Some(Fill::Values { element, bytes }) => {
                if *element != T::NAME {
                    return Err(format!(
                        "the case gives values of {element}, but the elements are {}",
                        T::NAME
                    ));
                }
                if bytes.len() != len * size_of::<T>() {
                    return Err(format!("the case gives {} bytes for {len} elements", bytes.len()));
                }
                return Ok(bytes.to_vec());
            }
            Some(Fill::Normal(deviation)) => {
                (0..len as u64).map(|i| T::nearest(deviation * random.normal(i))).collect()
            }
            Some(Fill::Uniform(low, high)) => {
                (0..len as u64).map(|i| T::nearest(low + (high - low) * random.uniform(i))).collect()
            }
            None if T::IS_FLOAT => (0..len as u64).map(|i| T::nearest(random.normal(i))).collect(),
            None => (0..len as u64)
                .map(|i| bytemuck::pod_read_unaligned(&random.bits(i).to_le_bytes()[..size_of::<T>()]))
                .collect(),
        };
        Ok(bytemuck::cast_slice(&values).to_vec())
    }

    fn input(&self, bytes: &[u8]) -> HostArg {
        HostArg::Input(Box::new(Self::elements(bytes)))
    }

    fn initial(&self, bytes: &[u8]) -> HostArg {
        let values: Vec<T::Reference> = Self::elements(bytes).into_iter().map(T::widen).collect();
        HostArg::Output(Box::new(values))
    }

    fn poisoned(&self, len: usize, poison: u8) -> HostArg {
        let mut values: Vec<T::Reference> = vec![bytemuck::Zeroable::zeroed(); len];
        bytemuck::cast_slice_mut::<_, u8>(&mut values).fill(poison);
        HostArg::Output(Box::new(values))
    }

    fn compare(&self, kind: Output, runs: &mut [Run<'_>; 2]) -> Result<Compared, Mismatch> {
        let [first, second] = runs;
        let (before, after) = (Self::elements(first.before), Self::elements(first.after));
        let (before_2, after_2) = (Self::elements(second.before), Self::elements(second.after));
        let (wanted, wanted_2) = (first.reference.output::<T>(), second.reference.output::<T>());
        // Only the values that the reference wrote count for the scale of the error.
        let mut written = Vec::with_capacity(wanted.len());
        let mut largest = f64::from(f32::MIN_POSITIVE);
        for (i, (value, value_2)) in wanted.iter().zip(wanted_2.iter()).enumerate() {
            let writes = match kind {
                Output::Written => same(value, value_2),
                Output::Updated => !same(value, &before[i].widen()),
            };
            written.push(writes);
            let number = T::number(*value).abs();
            if writes && number.is_finite() {
                largest = largest.max(number);
            }
        }
        let mut compared = Compared::default();
        for (i, writes) in written.into_iter().enumerate() {
            let mismatch = |what: String| Err(Mismatch { index: i, what });
            let (got, got_2) = (after[i], after_2[i]);
            if !writes {
                if !same(&got, &before[i]) || !same(&got_2, &before_2[i]) {
                    let got = Self::value(got.widen());
                    return mismatch(format!("the kernel wrote {got}, the reference leaves it alone"));
                }
                continue;
            }
            if !same(&got, &got_2) {
                let (got, got_2) = (Self::value(got.widen()), Self::value(got_2.widen()));
                return mismatch(match kind {
                    Output::Written => format!(
                        "not written, or not a function of the inputs: {got} and {got_2} from different poisons"
                    ),
                    Output::Updated => format!("two runs on the same inputs gave {got} and {got_2}"),
                });
            }
            compared.elements += 1;
            let (got, wanted) = (got.widen(), wanted[i]);
            let both = || format!("{}, the reference gives {}", Self::value(got), Self::value(wanted));
            if !T::IS_FLOAT {
                if got != wanted {
                    return mismatch(both());
                }
                continue;
            }
            let (got_number, wanted_number) = (T::number(got), T::number(wanted));
            if got_number.is_nan() || wanted_number.is_nan() {
                if got_number.is_nan() != wanted_number.is_nan() {
                    return mismatch(both());
                }
                continue;
            }
            // Equal infinities have no difference.
            let error =
                if got_number == wanted_number { 0.0 } else { (got_number - wanted_number).abs() / largest };
            if !error.is_finite() {
                return mismatch(both());
            }
            if error > compared.worst {
                (compared.worst, compared.index) = (error, i);
                (compared.got, compared.wanted) = (got_number, wanted_number);
            }
        }
        Ok(compared)
    }
}

fn same<T: bytemuck::Pod>(a: &T, b: &T) -> bool {
    bytemuck::bytes_of(a) == bytemuck::bytes_of(b)
}
