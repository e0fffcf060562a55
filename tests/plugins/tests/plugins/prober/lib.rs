//! A skill that tries whatever it is told to, and says what came of it: `done`, or the number of
//! the system's error.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::raw::{c_char, c_int, c_long, c_ulong};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::Command;

use conjure_skill_sdk::protocol::Execute;
use conjure_skill_sdk::{Skill, export_skill};

extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn chown(path: *const c_char, user: u32, group: u32) -> c_int;
    fn mkfifo(path: *const c_char, mode: u32) -> c_int;
    fn mknod(path: *const c_char, mode: u32, device: u64) -> c_int;
    fn fork() -> c_int;
    fn ioctl(file: c_int, request: c_ulong, ...) -> c_int;
    fn capget(header: *const u32, data: *mut u32) -> c_int;
    fn fcntl(file: c_int, command: c_int, ...) -> c_int;
    fn kill(process: c_int, signal: c_int) -> c_int;
    fn setpriority(which: c_int, who: u32, priority: c_int) -> c_int;
    fn setxattr(
        path: *const c_char,
        name: *const c_char,
        value: *const u8,
        size: usize,
        flags: c_int,
    ) -> c_int;
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut u8, size: usize) -> isize;
    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut u8, size: usize) -> isize;
    fn listxattr(path: *const c_char, names: *mut u8, size: usize) -> isize;
    fn llistxattr(path: *const c_char, names: *mut u8, size: usize) -> isize;
    fn inotify_init() -> c_int;
    fn inotify_add_watch(watches: c_int, path: *const c_char, changes: u32) -> c_int;
    fn _exit(code: c_int) -> !;
}

fn skill() -> Skill {
    Skill::new("prober", "Tries what it is told to").execute(
        "VERB ARGUMENT…",
        |_cx, c: Execute| {
            let words: Vec<&str> = c.command.split(' ').collect();
            match attempt(&words) {
                Ok(()) => "done".to_owned(),
                Err(error) => match error.raw_os_error() {
                    Some(number) => format!("error {number}"),
                    None => format!("no answer: {error}"),
                },
            }
        },
    )
}

fn attempt(words: &[&str]) -> io::Result<()> {
    let text = |path: &str| CString::new(path).map_err(io::Error::from);
    match *words {
        ["read", path] => fs::read(path).map(drop),
        ["list", path] => fs::read_dir(path).map(drop),
        ["write", path] => fs::write(path, "changed"),
        ["append", path] => fs::OpenOptions::new()
            .append(true)
            .open(path)?
            .write_all(b"changed"),
        ["truncate", path] => fs::OpenOptions::new().write(true).open(path)?.set_len(0),
        ["remove", path] => fs::remove_file(path),
        ["make-dir", path] => fs::create_dir(path),
        ["remove-dir", path] => fs::remove_dir(path),
        ["rename", from, to] => fs::rename(from, to),
        ["hard-link", from, to] => fs::hard_link(from, to),
        ["link-read", to, link] => {
            symlink(to, link)?;
            fs::read(link).map(drop)
        }
        ["link-write", to, link] => {
            symlink(to, link)?;
            fs::write(link, "changed")
        }
        ["make-link", path] => symlink("/nowhere", path),
        ["chmod", path] => {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))
        }
        // Of a file that is only open for reading.
        ["times", path] => fs::File::open(path)?.set_modified(std::time::UNIX_EPOCH),
        ["chown", path] => {
            let path = text(path)?;
            checked(unsafe { chown(path.as_ptr(), 1, 1) }.into())
        }
        ["set-attribute", path] => {
            let (path, name) = (text(path)?, text("user.x")?);
            checked(unsafe { setxattr(path.as_ptr(), name.as_ptr(), b"x".as_ptr(), 1, 0) }.into())
        }
        // How long the value and the names are, which the kernel says where there is no room for them.
        [verb @ ("get-attribute" | "get-attribute-of-link"), path] => {
            let (path, name) = (text(path)?, text("user.x")?);
            let get = match verb {
                "get-attribute" => getxattr,
                _ => lgetxattr,
            };
            let room = std::ptr::null_mut();
            checked(unsafe { get(path.as_ptr(), name.as_ptr(), room, 0) } as c_long)
        }
        [verb @ ("list-attributes" | "list-attributes-of-link"), path] => {
            let path = text(path)?;
            let list = match verb {
                "list-attributes" => listxattr,
                _ => llistxattr,
            };
            checked(unsafe { list(path.as_ptr(), std::ptr::null_mut(), 0) } as c_long)
        }
        ["watch", path] => {
            const ALL_CHANGES: u32 = 0xfff;
            let path = text(path)?;
            let watches = unsafe { inotify_init() };
            checked(watches.into())?;
            let watches = unsafe { OwnedFd::from_raw_fd(watches) };
            let added =
                unsafe { inotify_add_watch(watches.as_raw_fd(), path.as_ptr(), ALL_CHANGES) };
            checked(added.into())
        }
        ["pipe", path] => {
            let path = text(path)?;
            checked(unsafe { mkfifo(path.as_ptr(), 0o600) }.into())
        }
        ["device", path] => {
            let path = text(path)?;
            // A block device: the first disk.
            checked(unsafe { mknod(path.as_ptr(), 0o060_600, 8 << 8) }.into())
        }
        ["make-file", mode, path] => {
            use std::os::unix::fs::OpenOptionsExt;
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).mode(number(mode)? as u32);
            options.open(path).map(drop)
        }
        // A request to the system of a file that is open for reading, with zeros to take.
        ["request", number_of, path] => {
            let (file, zeros) = (fs::File::open(path)?, [0_u64; 8]);
            checked(
                unsafe { ioctl(file.as_raw_fd(), number(number_of)? as c_ulong, &zeros) }.into(),
            )
        }
        // A lease for writing, of a file that is open for reading: `F_SETLEASE` and `F_WRLCK`.
        ["lease", path] => {
            let file = fs::File::open(path)?;
            checked(unsafe { fcntl(file.as_raw_fd(), 1024, 1 as c_int) }.into())
        }
        ["capable", number_of] => {
            let (header, mut has) = ([0x2008_0522_u32, 0], [0_u32; 6]);
            checked(unsafe { capget(header.as_ptr(), has.as_mut_ptr()) }.into())?;
            let bit = number(number_of)? as u32;
            match has[(bit / 32 * 3) as usize] & (1 << (bit % 32)) {
                0 => Err(io::Error::from_raw_os_error(1)),
                _ => Ok(()),
            }
        }
        ["copy", from, to] => fs::copy(from, to).map(drop),
        ["socket-file", path] => UnixListener::bind(path).map(drop),
        ["tcp", address] => TcpStream::connect(address).map(drop),
        ["listen", address] => TcpListener::bind(address).map(drop),
        ["udp", address] => UdpSocket::bind("0.0.0.0:0")?
            .send_to(b"x", address)
            .map(drop),
        ["unix", path] => UnixStream::connect(path).map(drop),
        ["unix-datagram", path] => UnixDatagram::unbound()?.connect(path).map(drop),
        ["name", host] => {
            use std::net::ToSocketAddrs;
            (host, 80).to_socket_addrs().map(drop)
        }
        ["run", program] => Command::new(program).output().map(drop),
        // That many files are open at the same time.
        ["hold-open", count] => {
            let count: usize = count.parse().map_err(io::Error::other)?;
            let files = (0..count).map(|_| fs::File::open("/dev/null"));
            files.collect::<io::Result<Vec<_>>>().map(drop)
        }
        ["shell", ref script @ ..] => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(script.join(" ")).output().map(drop)
        }
        // A process of a session and a group of its own, whose parent is gone and which nothing but
        // SIGKILL ends. The file holds its number.
        ["daemon", path] => {
            let script = format!(
                "trap '' TERM HUP INT; echo $$ > {path}.new; mv {path}.new {path}; \
                 while :; do sleep 1; done"
            );
            let mut daemon = Command::new("setsid");
            daemon.args(["--fork", "sh", "-c", &script]);
            let null = std::process::Stdio::null;
            daemon.stdin(null()).stdout(null()).stderr(null());
            daemon.status().map(drop)
        }
        ["daemon-and-hang", path] => {
            attempt(&["daemon", path])?;
            loop {
                std::thread::park();
            }
        }
        ["abort"] => std::process::abort(),
        ["fork"] => {
            let child = unsafe { fork() };
            if child == 0 {
                unsafe { _exit(0) }
            }
            checked(child.into())
        }
        ["hang", path] => {
            fs::write(path, "here")?;
            loop {
                std::thread::park();
            }
        }
        ["thread"] => {
            let _ = std::thread::Builder::new().spawn(|| ())?.join();
            Ok(())
        }
        ["kill", process] => checked(unsafe { kill(number(process)? as c_int, 0) }.into()),
        ["priority", process] => {
            checked(unsafe { setpriority(0, number(process)? as u32, 19) }.into())
        }
        ["variable", name] => match std::env::var_os(name) {
            Some(_) => Ok(()),
            None => Err(io::Error::from_raw_os_error(2)),
        },
        ["call", ref numbers @ ..] => {
            let mut arguments = [0; 7];
            for (argument, text) in arguments.iter_mut().zip(numbers) {
                *argument = number(text)?;
            }
            let [call, a, b, c, d, e, f] = arguments;
            checked(unsafe { syscall(call, a, b, c, d, e, f) })
        }
        _ => Err(io::Error::other("there is no such attempt")),
    }
}

fn checked(result: c_long) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn number(text: &str) -> io::Result<c_long> {
    text.parse().map_err(io::Error::other)
}

export_skill!(skill, name = "prober");
