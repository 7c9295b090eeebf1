//! Where the system's librocksdb lies, if it lies elsewhere: `ROCKSDB_LIB_DIR`.

fn main() {
    println!("cargo:rerun-if-env-changed=ROCKSDB_LIB_DIR");
    if let Ok(dir) = std::env::var("ROCKSDB_LIB_DIR") {
        println!("cargo:rustc-link-search=native={dir}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{dir}");
    }
}
