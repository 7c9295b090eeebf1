//! The border between C and Rust: no panic crosses it, and each failure leaves its message.

use crate::code::{Failure, Outcome, WattleCode};
use std::{
    any::Any,
    cell::RefCell,
    ffi::{CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs a call. A panic becomes [`WattleCode::Panic`]: objects that were in use are unwound, so
/// their handles are closed or still whole.
pub fn border(call: impl FnOnce() -> Outcome) -> WattleCode {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(code)) => return code,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(WattleCode::Panic, format!("panic: {}", text_of(&*panic))),
    };
    let message = CString::new(failure.message.replace('\0', "\\0")).unwrap_or_default();
    // While a thread ends its message may be gone already: the code still says enough.
    let _ = MESSAGE.try_with(|last| last.replace(message));
    failure.code
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// The message of the thread's last failure.
pub fn message() -> *const c_char {
    MESSAGE.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code_with_its_message() {
        let code = border(|| panic!("for {}", "the test"));
        assert_eq!(code, WattleCode::Panic);
        MESSAGE.with(|last| assert_eq!(last.borrow().as_c_str(), c"panic: for the test"));
    }

    #[test]
    fn a_message_may_have_a_zero_byte() {
        assert_eq!(border(|| Err(Failure::argument("a\0b"))), WattleCode::InvalidArgument);
        MESSAGE.with(|last| assert_eq!(last.borrow().as_c_str(), c"a\\0b"));
    }
}
