//! The life of a store: open, write, read, close, open again.

use std::error::Error as StdError;
use wattle::{Engine, Error, Options};

fn main() -> Result<(), Box<dyn StdError>> {
    let (path, _temporary) = wattle_examples::store_path()?;

    // The pool is the memory for pages. It takes memory only as pages come in.
    let engine = Engine::open(&path, Options::default().pool_bytes(64 << 20))?;
    let users = engine.tree("users")?;
    let by_mail = engine.tree("users by mail")?;

    // Both trees change together or not at all. The commit is durable when it returns.
    let mut txn = engine.begin()?;
    txn.put(&users, &1_u64.to_be_bytes(), b"Ada,ada@example.org")?;
    txn.put(&by_mail, b"ada@example.org", &1_u64.to_be_bytes())?;
    txn.commit()?;

    // A session is for one thread, and each of its operations is a transaction.
    let session = engine.session()?;
    match session.insert(&by_mail, b"ada@example.org", &2_u64.to_be_bytes()) {
        Err(Error::KeyExists) => println!("the address is taken"),
        other => other?,
    }
    drop(session);

    // Closing fails while a handle is alive, and says which.
    drop((users, by_mail));
    engine.close()?;

    let engine = Engine::open(&path, Options::default().read_only(true))?;
    let by_mail = engine.open_tree("users by mail")?.ok_or("the tree is gone")?;
    let users = engine.open_tree("users")?.ok_or("the tree is gone")?;
    let session = engine.session()?;
    let id = session.get(&by_mail, b"ada@example.org")?.ok_or("the address is gone")?;
    // Reads the value where it is, without a copy.
    session.get_with(&users, &id, |user| println!("{}", String::from_utf8_lossy(user)))?;
    for entry in session.scan(&users)? {
        let (key, value) = entry?;
        println!("{key:?}: {} bytes", value.len());
    }
    Ok(())
}
