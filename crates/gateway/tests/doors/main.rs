//! The doors on loopback, with real sockets and real TLS on both sides.

#[cfg(test)]
mod cluster_id;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod server_name;
