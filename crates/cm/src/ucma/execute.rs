//! Executes commands on a manager.

use nichrome_wire::Instant;
use nichrome_wire::cm::Ece;

use super::answer;
use super::command::{Command, CommandHeader};
use super::fields::{Fields, Structure};
use super::layout::{
    ib_uverbs_qp_attr as qp_attr, rdma_ucm_create_id_resp as create_id_resp,
    rdma_ucm_event_resp as event_resp, rdma_ucm_query_addr_resp as addr_resp,
    rdma_ucm_query_path_resp as path_resp, rdma_ucm_query_route_resp as route_resp,
};
use crate::error::{CommandError, Errno};
use crate::event::ConnectionParameters;
use crate::host::Host;
use crate::manager::Manager;
use crate::name::{ChannelName, IdName};

/// The program that writes commands.
pub trait Caller {
    /// Reads the program's memory; `None` if it is not mapped.
    fn read(&mut self, address: u64, len: usize) -> Option<Vec<u8>>;

    /// Returns the channel of another of the program's open files; `None` if that file is no channel.
    fn channel_of(&mut self, fd: u32) -> Option<ChannelName>;
}

/// An answer for the program's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Where to write it.
    pub address: u64,
    /// The bytes to write.
    pub bytes: Vec<u8>,
}

/// Option levels and names.
const LEVEL_ID: u32 = 0;
const TRAFFIC_CLASS: u32 = 0;
const REUSE_ADDRESS: u32 = 1;
const FAMILY_ONLY: u32 = 2;
const ACK_TIMEOUT: u32 = 3;

/// The asynchronous event "communication established".
const COMMUNICATION_ESTABLISHED: u32 = 4;

/// Executes a command that a program wrote to its channel's file. The write succeeds as a whole, or fails
/// with the error.
///
/// # Errors
/// The error number of the write. EAGAIN: no event; a file that blocks waits for one.
pub fn execute<H: Host>(
    manager: &mut Manager<H>,
    channel: ChannelName,
    caller: &mut (impl Caller + ?Sized),
    written: &[u8],
    now: Instant,
) -> Result<Option<Answer>, Errno> {
    let (header, body) = CommandHeader::split(written)?;
    let command = Command::parse(header.number, body)?;
    if usize::from(header.answer_len) < min_answer_len(&command) {
        return Err(Errno::ENOSPC);
    }
    let answer = Execution { manager, channel, caller, now }.run(command)?;
    Ok(answer.map(|(address, Structure(mut bytes))| {
        bytes.truncate(header.answer_len.into());
        Answer { address, bytes }
    }))
}

/// Minimum bytes of the program's buffer: the length of the first version of the answer.
fn min_answer_len(command: &Command) -> usize {
    match command {
        Command::CreateId { .. }
        | Command::DestroyId { .. }
        | Command::JoinMulticast { .. }
        | Command::LeaveMulticast { .. } => create_id_resp::SIZE,
        Command::QueryRoute { .. } => route_resp::ibdev_index,
        Command::Query { option: 1, .. } => path_resp::SIZE,
        Command::Query { .. } => addr_resp::ibdev_index,
        Command::InitQpAttr { .. } => qp_attr::SIZE,
        Command::GetEvent { .. } => event_resp::reserved,
        _ => 0,
    }
}

/// A command in execution.
struct Execution<'a, H, C: ?Sized> {
    manager: &'a mut Manager<H>,
    channel: ChannelName,
    caller: &'a mut C,
    now: Instant,
}

type Outcome = Result<Option<(u64, Structure)>, Errno>;

impl<H: Host, C: Caller + ?Sized> Execution<'_, H, C> {
    fn run(&mut self, command: Command) -> Outcome {
        if let Some(id) = command.id() {
            self.manager.check_channel(self.channel, id).map_err(CommandError::errno)?;
        }
        match command {
            Command::SetOption { id, level, name, value, len } => {
                self.set_option(id, (level, name), (value, len))
            }
            Command::MigrateId { id, fd, response } => self.migrate(id, fd, response),
            Command::Query { id, option, response } => self.query(id, option, response),
            Command::GetEvent { response } => {
                let event = self.manager.get_event(self.channel).map_err(CommandError::errno)?;
                Ok(Some((response, answer::event(&event.ok_or(Errno::EAGAIN)?))))
            }
            command => self.run_simple(command).map_err(CommandError::errno),
        }
    }

    fn run_simple(&mut self, command: Command) -> Result<Option<(u64, Structure)>, CommandError> {
        let (manager, now) = (&mut *self.manager, self.now);
        match command {
            Command::CreateId { uid, response, space, kind } => {
                let id = manager.create_id(self.channel, uid, space, kind)?;
                return Ok(Some((response, number(id.0))));
            }
            Command::DestroyId { id, response } => {
                return Ok(Some((response, number(manager.destroy_id(id, now)?))));
            }
            Command::Bind { id, source } => manager.bind(id, source)?,
            Command::ResolveAddress { id, source, destination, timeout_ms } => {
                manager.resolve_address(id, source, destination, timeout_ms, now)?;
            }
            Command::ResolveRoute { id, timeout_ms } => manager.resolve_route(id, timeout_ms, now)?,
            Command::QueryRoute { id, response } => {
                let report = manager.query(id)?;
                return Ok(Some((response, answer::query_route(&report, manager.config().guid))));
            }
            Command::Connect { id, parameters, ece } => manager.connect(id, &parameters, ece, now)?,
            Command::Listen { id, backlog } => manager.listen(id, backlog)?,
            Command::Accept { id, uid, parameters, ece } => self.accept(id, uid, parameters, ece)?,
            Command::Reject { id, reason, private_data } => manager.reject(id, reason, &private_data, now)?,
            Command::Disconnect { id } => manager.disconnect(id, now)?,
            Command::InitQpAttr { id, state, response } => {
                let change = manager.qp_attributes(id, state)?;
                return Ok(Some((response, answer::qp_attributes(&change, state))));
            }
            Command::Notify { id, event: COMMUNICATION_ESTABLISHED } => {
                manager.communication_established(id)?;
            }
            Command::Notify { .. } => return Err(CommandError::Argument),
            Command::WriteEvent { id, kind, status, argument } => {
                manager.write_event(id, kind, status, argument)?;
            }
            Command::JoinMulticast { id, uid, group, reception, response } => {
                let membership = manager.join_multicast(id, uid, group.ip(), reception)?;
                return Ok(Some((response, number(membership.0))));
            }
            Command::LeaveMulticast { membership, response } => {
                let id = manager.id_of_membership(membership)?;
                manager.check_channel(self.channel, id)?;
                return Ok(Some((response, number(manager.leave_multicast(membership)?))));
            }
            Command::SetOption { .. }
            | Command::MigrateId { .. }
            | Command::Query { .. }
            | Command::GetEvent { .. } => {}
        }
        Ok(None)
    }

    /// Accepts a request. Without parameters, sends the RTU: the program has moved its queue pair after
    /// `ConnectResponse`.
    fn accept(
        &mut self,
        id: IdName,
        uid: u64,
        parameters: Option<ConnectionParameters>,
        ece: Ece,
    ) -> Result<(), CommandError> {
        match parameters {
            Some(parameters) => self.manager.accept(id, uid, &parameters, ece, self.now),
            None => self.manager.establish(id, self.now),
        }
    }

    fn query(&mut self, id: IdName, option: u32, response: u64) -> Outcome {
        let report = self.manager.query(id).map_err(CommandError::errno)?;
        let guid = self.manager.config().guid;
        let answer = match option {
            0 => answer::query_address(&report, guid),
            1 => answer::query_path(&report),
            2 => answer::query_gid(&report, guid),
            _ => return Err(Errno::ENOSYS),
        };
        Ok(Some((response, answer)))
    }

    /// Moves an identifier of another of the program's channels to this one.
    fn migrate(&mut self, id: IdName, fd: u32, response: u64) -> Outcome {
        let from = self.caller.channel_of(fd).ok_or(Errno::ENOENT)?;
        self.manager.check_channel(from, id).map_err(CommandError::errno)?;
        let reported = self.manager.migrate_id(id, self.channel).map_err(CommandError::errno)?;
        Ok(Some((response, number(reported))))
    }

    fn set_option(&mut self, id: IdName, (level, name): (u32, u32), (value, len): (u64, u32)) -> Outcome {
        let expected = match (level, name) {
            (LEVEL_ID, TRAFFIC_CLASS | ACK_TIMEOUT) => 1,
            (LEVEL_ID, REUSE_ADDRESS | FAMILY_ONLY) => 4,
            _ => return Err(Errno::ENOSYS),
        };
        if len != expected {
            return Err(Errno::EINVAL);
        }
        let bytes = self.caller.read(value, len as usize).ok_or(Errno::EFAULT)?;
        let (byte, flag) = (Fields(&bytes).u8(0), Fields(&bytes).u32(0) != 0);
        let set = match name {
            TRAFFIC_CLASS => self.manager.set_traffic_class(id, byte),
            ACK_TIMEOUT => self.manager.set_ack_timeout(id, byte),
            REUSE_ADDRESS => self.manager.set_reuse_address(id, flag),
            _ => self.manager.set_family_only(id, flag),
        };
        set.map(|()| None).map_err(CommandError::errno)
    }
}

impl Command {
    /// The identifier that must be of the channel that the command is written to.
    const fn id(&self) -> Option<IdName> {
        match self {
            Self::DestroyId { id, .. }
            | Self::Bind { id, .. }
            | Self::ResolveAddress { id, .. }
            | Self::ResolveRoute { id, .. }
            | Self::QueryRoute { id, .. }
            | Self::Query { id, .. }
            | Self::Connect { id, .. }
            | Self::Listen { id, .. }
            | Self::Accept { id, .. }
            | Self::Reject { id, .. }
            | Self::Disconnect { id }
            | Self::InitQpAttr { id, .. }
            | Self::SetOption { id, .. }
            | Self::Notify { id, .. }
            | Self::WriteEvent { id, .. }
            | Self::JoinMulticast { id, .. } => Some(*id),
            Self::CreateId { .. }
            | Self::GetEvent { .. }
            | Self::LeaveMulticast { .. }
            | Self::MigrateId { .. } => None,
        }
    }
}

/// An answer of one 32-bit number.
fn number(value: u32) -> Structure {
    let mut s = Structure::new(create_id_resp::SIZE);
    s.u32(create_id_resp::id, value);
    s
}
