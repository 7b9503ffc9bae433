//! Encodes and decodes protobuf messages with small initial buffers.
use prost::Message;
use std::marker::PhantomData;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// The initial buffer of a call in bytes; larger messages grow it. tonic's default of 8 KiB stays allocated as long as
/// the stream, and each device has a ListAndWatch stream.
const FIRST_BUFFER: usize = 512;
/// The size in bytes from which a response is written before more of it is encoded. It is tonic's default.
const YIELD_THRESHOLD: usize = 32 * 1024;

/// The codec of all generated clients and servers.
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
