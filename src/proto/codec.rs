//! Protobuf on the wire with buffers of the size that messages here have.
use prost::Message;
use std::marker::PhantomData;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// What a call allocates first; a larger message takes more. tonic's own 8 KiB stay with each ListAndWatch stream for
/// as long as it lives, and there is one for each device.
const FIRST_BUFFER: usize = 512;
/// From here on a response is written before more of it is encoded. As tonic has it.
const YIELD_THRESHOLD: usize = 32 * 1024;

/// The codec of every generated client and server.
#[derive(Debug)]
pub struct SmallMessages<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallMessages<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallMessages<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(FIRST_BUFFER, YIELD_THRESHOLD))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(FIRST_BUFFER, YIELD_THRESHOLD))
    }
}
