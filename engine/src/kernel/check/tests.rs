//! The harness against kernels of known faults, each a few lines of PTX: what it accepts, and what it says otherwise.

use ptx_sim::system::{System, SystemConfig};

use super::{CheckFailure, KernelReport, check_kernel};
use crate::device::Device;
use crate::kernel::{Case, Counter, Fill, Kernel, KernelDecl, kernel};

/// An entry `name(x, y, n)` in which thread i below n computes `body` from `%f1` = x[i]. `%rd4` points at x[i], `%rd5`
/// at y[i].
fn entry(name: &str, body: &str) -> String {
    format!(
        "
.visible .entry {name}(.param .u64 {name}_0, .param .u64 {name}_1, .param .u32 {name}_2)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [{name}_0];
    ld.param.u64 %rd2, [{name}_1];
    ld.param.u32 %r2, [{name}_2];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 bra DONE;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    {body}
DONE:
    ret;
}}
"
    )
}

fn check(decl: &'static KernelDecl, body: &str) -> Result<KernelReport, CheckFailure> {
    let device = Device::open_in(&System::new(SystemConfig::default()), 0).unwrap();
    let ptx = format!(".version 7.0\n.target sm_80\n.address_size 64\n{}", entry(decl.entry, body));
    let module = device.load_module(decl.module, &ptx).unwrap();
    check_kernel(decl, &device, &module.function(decl.entry).unwrap(), false)
}

fn error(result: Result<KernelReport, CheckFailure>) -> String {
    // The chain, as programs print it.
    let error = result.unwrap_err();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

const TWICE: &str = "add.rn.f32 %f2, %f1, %f1;\n    st.global.f32 [%rd5], %f2;";

fn cases() -> Vec<Case> {
    [1, 5, 32].map(|n| Case::new(format!("n={n}")).u32("n", n)).to_vec()
}

fn no_cases() -> Vec<Case> {
    Vec::new()
}

fn representative() -> Vec<Case> {
    vec![Case::new("one").u32("n", 1), Case::new("model").u32("n", 32).representative()]
}

fn roomy() -> Vec<Case> {
    vec![Case::new("room").u32("n", 3).len("y", 8)]
}

fn twice(x: &[f32], y: &mut [f64], n: u32) {
    for i in 0..n as usize {
        y[i] = 2.0 * f64::from(x[i]);
    }
}

macro_rules! twice {
    ($($name:ident $entry:literal $reference:path, $cases:path, $tol:literal;)*) => {$(
        #[kernel(module = "test_check", entry = $entry, reference = $reference, cases = $cases, tol = $tol)]
        #[launch(grid = (1, 1, 1), block = (32, 1, 1))]
        #[cost(read = x.bytes(), write = y.bytes(), flops = n)]
        #[allow(dead_code)]
        fn $name(#[len(n)] x: &[f32], #[out] #[len(n)] y: &mut [f32], n: u32);
    )*};
}

twice! {
    check_exact "check_exact" twice, cases, 0.0;
    check_close "check_close" twice, cases, 2e-7;
    check_loose "check_loose" twice, cases, 1e-3;
    check_empty "check_empty" twice, no_cases, 0.0;
    check_skipped "check_skipped" twice, representative, 0.0;
    check_roomy "check_roomy" twice, roomy, 0.0;
    check_nothing "check_nothing" nothing, cases, 0.0;
    check_nan "check_nan" half_nan, cases, 0.0;
    check_misnamed "check_misnamed" twice, misnamed, 0.0;
    check_incomplete "check_incomplete" twice, incomplete, 0.0;
    check_short "check_short" twice, short, 0.0;
}

fn nothing(_: &[f32], _: &mut [f64], _: u32) {}

fn half_nan(x: &[f32], y: &mut [f64], n: u32) {
    twice(x, y, n);
    y[0] = f64::NAN;
}

fn misnamed() -> Vec<Case> {
    vec![Case::new("slip").u32("m", 1)]
}

fn incomplete() -> Vec<Case> {
    vec![Case::new("gap")]
}

fn short() -> Vec<Case> {
    vec![Case::new("short").u32("n", 4).len("x", 3)]
}

#[test]
fn a_right_kernel_passes_and_every_element_counts() {
    let report = check(CheckExact::DECL, TWICE).unwrap();
    let wanted = KernelReport {
        kernel: "check_exact",
        cases: 3,
        skipped: 0,
        elements: 1 + 5 + 32,
        worst: 0.0,
        tolerance: 0.0,
        worst_case: "n=1".to_owned(),
    };
    assert_eq!(report, wanted);
}

#[test]
fn a_representative_case_is_not_for_the_simulated_device() {
    let report = check(CheckSkipped::DECL, TWICE).unwrap();
    assert_eq!((report.cases, report.skipped, report.elements), (1, 1, 1));
}

#[test]
fn an_element_that_is_not_written_is_found() {
    // The last element is left out.
    let body = "add.u32 %r3, %r1, 1;\n setp.ge.u32 %p2, %r3, %r2;\n @%p2 bra DONE;\n".to_owned() + TWICE;
    let error = error(check(CheckExact::DECL, &body));
    assert!(
        error.starts_with("kernel check_exact, case `n=1`, argument `y`, element 0: not written"),
        "{error}"
    );
}

#[test]
fn an_element_that_the_reference_leaves_alone_is_guarded() {
    let body = format!("{TWICE}\n st.global.f32 [%rd5+4], %f2;");
    let error = error(check(CheckRoomy::DECL, &body));
    let wanted = "kernel check_roomy, case `room`, argument `y`, element 3: the kernel wrote";
    assert!(error.starts_with(wanted), "{error}");
    assert!(check(CheckRoomy::DECL, TWICE).is_ok());
}

#[test]
fn a_store_past_the_end_or_before_the_start_is_found() {
    let past = error(check(CheckExact::DECL, &format!("{TWICE}\n st.global.f32 [%rd5+4], %f2;")));
    assert!(past.contains("case `n=1`, argument `y`: byte 4 is outside it"), "{past}");
    let before = error(check(CheckExact::DECL, &format!("{TWICE}\n st.global.f32 [%rd5+-8], %f2;")));
    assert!(before.contains("case `n=1`, argument `y`: byte -8 is outside it"), "{before}");
}

#[test]
fn a_load_past_the_end_faults_in_the_unguarded_run() {
    let error = error(check(CheckExact::DECL, &format!("ld.global.f32 %f3, [%rd4+4];\n{TWICE}")));
    assert!(error.contains("case `n=1`") && error.contains("`check_exact`"), "{error}");
}

#[test]
fn an_input_that_is_written_is_found() {
    let error = error(check(CheckExact::DECL, &format!("{TWICE}\n st.global.f32 [%rd4], %f2;")));
    // The simulated device may refuse the store itself.
    assert!(error.contains("argument `x`: byte") || error.contains("read-only"), "{error}");
}

#[test]
fn errors_are_relative_to_the_largest_value_and_tolerances_bite_both_ways() {
    // A relative error of 2⁻²³ of each element, so the worst of the largest element.
    let body = "add.rn.f32 %f2, %f1, %f1;\n mul.rn.f32 %f2, %f2, 0f3F800001;\n st.global.f32 [%rd5], %f2;";
    let report = check(CheckClose::DECL, body).unwrap();
    let ulp = 2f64.powi(-23);
    assert!(report.worst > 0.6 * ulp && report.worst < 1.5 * ulp, "{}", report.worst);
    let above = error(check(CheckExact::DECL, body));
    assert!(above.contains("above the declared tolerance 0e0"), "{above}");
    let loose = error(check(CheckLoose::DECL, body));
    assert!(loose.starts_with("kernel check_loose: the declared tolerance 1e-3 is too loose"), "{loose}");
    // An exact result says nothing of a tolerance for longer sums.
    assert!(check(CheckLoose::DECL, TWICE).is_ok());
}

#[test]
fn a_check_of_nothing_fails() {
    let empty = error(check(CheckEmpty::DECL, TWICE));
    assert!(empty.contains("nothing was compared (0 cases, 0 elements)"), "{empty}");
    let nothing = error(check(CheckNothing::DECL, "mov.f32 %f2, %f1;"));
    assert!(nothing.contains("nothing was compared (3 cases, 0 elements)"), "{nothing}");
}

#[test]
fn nan_is_accepted_where_the_reference_has_it_and_nowhere_else() {
    let nan = "mov.f32 %f2, 0f7FFFFFFF;\n st.global.f32 [%rd5], %f2;";
    let error_nan = error(check(CheckExact::DECL, nan));
    assert!(error_nan.contains("element 0: NaN, the reference gives"), "{error_nan}");
    let first = "add.rn.f32 %f2, %f1, %f1;\n setp.eq.u32 %p2, %r1, 0;\n @%p2 mov.f32 %f2, 0f7FFFFFFF;\n \
                 st.global.f32 [%rd5], %f2;";
    assert!(check(CheckNan::DECL, first).is_ok());
    let missing = error(check(CheckNan::DECL, TWICE));
    assert!(missing.contains("the reference gives NaN"), "{missing}");
}

#[test]
fn cases_are_held_to_the_declaration() {
    let misnamed = error(check(CheckMisnamed::DECL, TWICE));
    assert_eq!(
        misnamed,
        "kernel check_misnamed, case `slip`: the case gives a scalar for `m`, which the kernel does not have"
    );
    let incomplete = error(check(CheckIncomplete::DECL, TWICE));
    assert_eq!(incomplete, "kernel check_incomplete, case `gap`: the case gives no value for the scalar `n`");
    let short = error(check(CheckShort::DECL, TWICE));
    assert!(short.starts_with("case `short`: kernel check_short, argument `x`: 3 elements"), "{short}");
}

/// Adds to what is there, counts, and leaves the counts of others alone.
fn accumulate(x: &[f32], sum: &mut [f64], seen: &mut [i32], total: &mut u32, n: u32) {
    for i in 0..n as usize {
        sum[i] += f64::from(x[i]);
    }
    seen[1] += 1;
    *total += n;
}

fn accumulate_cases() -> Vec<Case> {
    let case = |n| Case::new(format!("n={n}")).u32("n", n).counter("total", 7).values("seen", &[3i32, 4, 5]);
    vec![case(1), case(32).fill("sum", Fill::Uniform(1.0, 2.0)).fill("x", Fill::Normal(4.0))]
}

#[kernel(
    module = "test_check",
    entry = "check_update",
    reference = accumulate,
    cases = accumulate_cases,
    tol = 1e-7
)]
#[launch(grid = (1, 1, 1), block = (32, 1, 1))]
#[cost(read = 2 * x.bytes() + 8, write = sum.bytes() + 8, flops = n)]
#[allow(dead_code)]
fn check_update(
    #[len(n)] x: &[f32],
    #[len(n)] sum: &mut [f32],
    #[len(3)] seen: &mut [i32],
    total: &mut Counter,
    n: u32,
);

fn update(extra: &str) -> Result<KernelReport, CheckFailure> {
    let device = Device::open_in(&System::new(SystemConfig::default()), 0).unwrap();
    let ptx = format!(
        ".version 7.0
.target sm_80
.address_size 64
.visible .entry check_update(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u32 e)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd6, [c];
    ld.param.u64 %rd7, [d];
    ld.param.u32 %r2, [e];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 bra DONE;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    ld.global.f32 %f2, [%rd5];
    add.rn.f32 %f3, %f1, %f2;
    st.global.f32 [%rd5], %f3;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra DONE;
    ld.global.u32 %r3, [%rd6+4];
    add.u32 %r4, %r3, 1;
    st.global.u32 [%rd6+4], %r4;
    ld.global.u32 %r5, [%rd7];
    add.u32 %r6, %r5, %r2;
    st.global.u32 [%rd7], %r6;
    {extra}
DONE:
    ret;
}}
"
    );
    let module = device.load_module("test_check", &ptx).unwrap();
    check_kernel(CheckUpdate::DECL, &device, &module.function("check_update").unwrap(), false)
}

#[test]
fn what_is_read_and_written_starts_from_its_values() {
    let report = update("").unwrap();
    // Sums, one count a case, the total.
    assert_eq!((report.cases, report.elements), (2, (1 + 1 + 1) + (32 + 1 + 1)));
    assert!(report.worst > 0.0, "one rounding of a sum");
}

#[test]
fn integers_are_exact_and_neighbours_untouched() {
    let off = error(update("st.global.u32 [%rd6+4], %r3;"));
    assert_eq!(off, "kernel check_update, case `n=1`, argument `seen`, element 1: 4, the reference gives 5");
    let stray = error(update("st.global.u32 [%rd6+8], %r4;\n st.global.u32 [%rd6], %r1;"));
    let wanted = "kernel check_update, case `n=1`, argument `seen`, element 0: the kernel wrote 0, the reference leaves it alone";
    assert_eq!(stray, wanted);
    let total = error(update("st.global.u32 [%rd7], %r5;"));
    assert!(
        total.ends_with("argument `total`, element 0: [7, 7] after two runs, the reference gives 8"),
        "{total}"
    );
}
