//! A key-value service over HTTP: `http-service ADDRESS STORE`. Ends with Ctrl-C, and then closes
//! the store.

use std::error::Error;
use wattle::{Engine, Options};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("two arguments are needed: an address such as 127.0.0.1:8080, a store".into());
    };
    let engine = Engine::open(path, Options::default())?;
    let tree = engine.tree("records")?;
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let stopped = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            eprintln!("cannot wait for Ctrl-C: {error}");
        }
    };
    axum::serve(listener, wattle_examples::service(engine.clone(), tree))
        .with_graceful_shutdown(stopped)
        .await?;
    engine.close()?;
    println!("closed");
    Ok(())
}
