//! Detects whether a program was compiled with optimisation. A PgBouncer without it (with autoconf
//! 2.71, its `configure` leaves `-O2` out) makes the comparison unfair.

/// The result from the machine code; `None` for other machines than amd64.
pub fn is_optimised(program: &[u8]) -> Option<bool> {
    let elf_for_amd64 = program.starts_with(b"\x7fELF") && program.get(18..20) == Some(&[62, 0]);
    if !elf_for_amd64 {
        return None;
    }
    let (mut functions, mut storing) = (0, 0);
    for at in positions(program, &[0x55, 0x48, 0x89, 0xe5]) {
        functions += 1;
        storing += u32::from(stores_argument(&program[at + 4..]));
    }
    // Most functions have arguments. In optimised code, few functions begin like this.
    Some(storing < 20 || storing * 4 < functions)
}

/// The positions of a pattern.
fn positions<'a>(bytes: &'a [u8], pattern: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let windows = bytes.windows(pattern.len()).enumerate();
    windows
        .filter(move |(_, window)| *window == pattern)
        .map(|(at, _)| at)
}

/// True if the code after `push %rbp; mov %rsp, %rbp` stores the first argument on the stack at
/// once, like code without optimisation.
fn stores_argument(mut code: &[u8]) -> bool {
    loop {
        code = match code {
            // push of %rbx, or of %r12 to %r15
            [0x53, rest @ ..] | [0x41, 0x54..=0x57, rest @ ..] => rest,
            // sub $.., %rsp
            [0x48, 0x83, 0xec, _, rest @ ..] | [0x48, 0x81, 0xec, _, _, _, _, rest @ ..] => rest,
            // mov %rdi, ..(%rbp); mov %edi, ..(%rbp)
            [0x48, 0x89, 0x7d, ..] | [0x89, 0x7d, ..] => return true,
            _ => return false,
        };
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use std::fmt::Write;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_a_c_compiler_made_is_recognised() {
        let folder = std::env::temp_dir().join(format!("howdah-compiled-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, program) = (folder.join("p.c"), folder.join("p"));
        let mut text = String::new();
        for n in 0..40 {
            writeln!(text, "int f{n}(int *p) {{ return *p * {n}; }}").unwrap();
        }
        std::fs::write(&source, text + "int main(void) { return 0; }").unwrap();
        let framed = ["-O2", "-fno-omit-frame-pointer"];
        for (flags, optimised) in [(&["-O0"][..], false), (&["-O2"], true), (&framed, true)] {
            let mut cc = Command::new("cc");
            cc.args(flags).arg(&source).arg("-o").arg(&program);
            assert!(cc.status().unwrap().success());
            let made = std::fs::read(&program).unwrap();
            assert_eq!(is_optimised(&made), Some(optimised), "{flags:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn nothing_is_said_of_what_is_not_known() {
        assert_eq!(is_optimised(b"#!/bin/sh\n"), None);
    }
}
