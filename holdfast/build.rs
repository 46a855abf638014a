//! The migrations are compiled into the program, so a change of any of their files rebuilds it.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
