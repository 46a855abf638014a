//! The migrations are part of the program: it is built anew when a file of them comes, goes or changes.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
