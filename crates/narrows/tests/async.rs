//! The ends of a channel in async code.

use futures_lite::{AsyncReadExt, AsyncWriteExt, future};
use narrows::{Auth, Error};

#[test]
fn a_channel_is_read_and_written_by_async_code() -> Result<(), Error> {
    let listener = narrows::listen("127.0.0.1:0", Auth::None)?;
    let here = narrows::connect(&listener.local().to_string(), Auth::None)?;
    let there = listener.accept()?;
    let (writer, _) = here.open("async")?;
    let narrows::Incoming {
        reader,
        writer: _back,
        ..
    } = there.accept()?.expect("a channel");
    let text = "down the strait ".repeat(10_000);
    let (mut writer, mut reader) = (writer.into_async(), reader.into_async());
    let send = async {
        writer.write_all(text.as_bytes()).await?;
        writer.flush().await?;
        writer.into_inner().await.finish()?;
        std::io::Result::Ok(())
    };
    let mut came = String::new();
    let both = future::zip(send, reader.read_to_string(&mut came));
    let (sent, read) = future::block_on(both);
    sent?;
    read?;
    assert!(came == text);
    Ok(())
}
