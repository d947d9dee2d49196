//! The part of testcontainers' interface that rslock's tests use. A "container" is a process of the
//! redis-server in PATH, which listens on a free port of this machine.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Error(e.to_string())
    }
}

pub mod core {
    pub struct Port(pub u16);

    pub trait IntoContainerPort {
        fn tcp(self) -> Port;
    }

    impl IntoContainerPort for u16 {
        fn tcp(self) -> Port {
            Port(self)
        }
    }

    #[derive(Clone)]
    pub struct WaitFor {
        pub(crate) message: String,
    }

    impl WaitFor {
        pub fn message_on_stdout(message: &str) -> Self {
            WaitFor {
                message: message.to_string(),
            }
        }
    }
}

#[derive(Clone)]
pub struct GenericImage {
    wait: Option<core::WaitFor>,
}

impl GenericImage {
    pub fn new(_name: &str, _tag: &str) -> Self {
        GenericImage { wait: None }
    }

    pub fn with_exposed_port(self, _port: core::Port) -> Self {
        self
    }

    pub fn with_wait_for(self, wait: core::WaitFor) -> Self {
        GenericImage { wait: Some(wait) }
    }
}

pub struct ContainerAsync<I> {
    child: Child,
    port: u16,
    _image: I,
}

impl<I> ContainerAsync<I> {
    pub async fn get_host_port_ipv4(&self, _inner: u16) -> Result<u16, Error> {
        Ok(self.port)
    }
}

impl<I> Drop for ContainerAsync<I> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub mod runners {
    use super::*;

    #[allow(async_fn_in_trait)]
    pub trait AsyncRunner {
        async fn start(self) -> Result<ContainerAsync<GenericImage>, Error>;
    }

    impl AsyncRunner for GenericImage {
        async fn start(self) -> Result<ContainerAsync<GenericImage>, Error> {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let mut child = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--save", ""])
                .stdout(Stdio::piped())
                .spawn()?;
            let stdout = child.stdout.take().expect("standard output is a pipe");
            let container = ContainerAsync {
                child,
                port,
                _image: self.clone(),
            };
            if let Some(wait) = self.wait {
                for line in BufReader::new(stdout).lines() {
                    if line?.contains(&wait.message) {
                        return Ok(container);
                    }
                }
                return Err(Error("redis-server ended".to_string()));
            }
            Ok(container)
        }
    }
}
