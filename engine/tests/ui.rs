//! What `#[kernel]` accepts, and what it says of each mistake: the words and the token they point at.

#[test]
fn declarations() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
