//! The kinds of messages, by the byte that each begins with. The two directions use the same bytes for different
//! messages, so each has a type of its own; a byte that means nothing stays representable, since whoever forwards it
//! decides.

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($kind:ident = $byte:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $(
                #[doc = concat!("`", stringify!($byte), "`.")]
                $kind,
            )*
            /// A byte that the protocol gives no meaning.
            Unknown(u8),
        }

        impl $name {
            /// All kinds but the unknown ones.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The byte that a message of this kind begins with.
            pub const fn byte(self) -> u8 {
                match self {
                    $(Self::$kind => $byte,)*
                    Self::Unknown(byte) => byte,
                }
            }
        }

        impl From<u8> for $name {
            #[inline]
            fn from(byte: u8) -> Self {
                match byte {
                    $($byte => Self::$kind,)*
                    byte => Self::Unknown(byte),
                }
            }
        }

        impl From<$name> for u8 {
            #[inline]
            fn from(kind: $name) -> u8 {
                kind.byte()
            }
        }
    };
}

kinds! {
    /// The kind of a message from the client (PostgreSQL documentation, 55.7).
    FrontendKind {
        Bind = b'B',
        Close = b'C',
        CopyData = b'd',
        CopyDone = b'c',
        CopyFail = b'f',
        Describe = b'D',
        Execute = b'E',
        Flush = b'H',
        FunctionCall = b'F',
        Parse = b'P',
        Password = b'p',
        Query = b'Q',
        Sync = b'S',
        Terminate = b'X',
    }
}

/// The largest message of a kind that names or ends something (`PQ_SMALL_MESSAGE_LIMIT`), in bytes without the type byte.
pub const SMALL_MESSAGE_BYTES_MAX: u32 = 10_000;

impl FrontendKind {
    /// Whether PostgreSQL takes small messages of this kind only (`SocketBackend`).
    pub const fn is_small(self) -> bool {
        use FrontendKind::{Close, CopyDone, CopyFail, Describe, Execute, Flush, Sync, Terminate};
        matches!(self, Close | CopyDone | CopyFail | Describe | Execute | Flush | Sync | Terminate)
    }
}

kinds! {
    /// The kind of a message from the server (PostgreSQL documentation, 55.7).
    BackendKind {
        Authentication = b'R',
        BackendKeyData = b'K',
        BindComplete = b'2',
        CloseComplete = b'3',
        CommandComplete = b'C',
        CopyBothResponse = b'W',
        CopyData = b'd',
        CopyDone = b'c',
        CopyInResponse = b'G',
        CopyOutResponse = b'H',
        DataRow = b'D',
        EmptyQueryResponse = b'I',
        ErrorResponse = b'E',
        FunctionCallResponse = b'V',
        NegotiateProtocolVersion = b'v',
        NoticeResponse = b'N',
        NotificationResponse = b'A',
        NoData = b'n',
        ParameterDescription = b't',
        ParameterStatus = b'S',
        ParseComplete = b'1',
        PortalSuspended = b's',
        ReadyForQuery = b'Z',
        RowDescription = b'T',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_one_kind_and_back() {
        for byte in 0..=u8::MAX {
            assert_eq!(FrontendKind::from(byte).byte(), byte);
            assert_eq!(BackendKind::from(byte).byte(), byte);
        }
        let unknown = |byte: &u8| matches!(FrontendKind::from(*byte), FrontendKind::Unknown(_));
        assert_eq!((0..=u8::MAX).filter(|byte| !unknown(byte)).count(), FrontendKind::ALL.len());
        let unknown = |byte: &u8| matches!(BackendKind::from(*byte), BackendKind::Unknown(_));
        assert_eq!((0..=u8::MAX).filter(|byte| !unknown(byte)).count(), BackendKind::ALL.len());
    }
}
