-- Wireshark's dissector of StaR, RDMA between a stateful side and a stateless card. The specification is docs/star.md.
--
--   wireshark -X lua_script:dist/wireshark/star.lua capture.pcapng
--
-- or copy this file to the folder "Personal Lua Plugins" that Help > About Wireshark > Folders shows. From Wireshark 3.6 on.
--
-- The integrity check of packets without a tag begins with the epoch, the number of the server's start, which no packet carries.
-- It is found from the check: star.epoch is the same for all undamaged packets of one server.

local star = Proto("star", "StaR")

local TYPES = { "WQEP", "CQEP", "EA", "RDP", "RA", "GD", "SDP", "AOP" }
local TYPE_TITLES = {
  "Work queue element", "Completion queue element", "Element acknowledgement", "Receiving data",
  "Receiving acknowledgement", "Getting data", "Sending data",
  "Atomic operation",
}
local WQEP, CQEP, EA, RDP, RA, GD, SDP, AOP = 1, 2, 3, 4, 5, 6, 7, 8

local OPCODES = {
  [1] = "SEND", [2] = "SEND with immediate", [3] = "SEND with invalidate", [4] = "WRITE", [5] = "WRITE with immediate",
  [6] = "READ", [7] = "Compare and swap", [8] = "Fetch and add", [9] = "RECEIVE",
  [16] = "Register", [17] = "Deregister", [18] = "Close", [19] = "Lease", [20] = "Rights",
}
local COMPLETED = {
  [0] = "SEND", [1] = "WRITE", [2] = "READ", [3] = "Compare and swap", [4] = "Fetch and add",
  [128] = "RECEIVE", [129] = "RECEIVE with WRITE", [254] = "Receives wanted",
  [255] = "Connection",
}
local STATUSES = {
  [0] = "Success", "Local length", "Local QP operation", "Local EE context", "Local protection", "Flushed",
  "Memory window bind", "Bad response", "Local access", "Remote invalid request", "Remote access", "Remote operation",
  "Retry exceeded", "RNR retry exceeded", "Local RDD violation", "Remote invalid RD request", "Remote aborted",
  "Invalid EE context number", "Invalid EE context state", "Fatal", "Response timeout", "General",
}
local NOTICES = { [0] = "None", "Immediate", "Invalidate" }
local REASONS = {
  "Key", "Owner", "Right", "Bounds", "State", "Fault", "Length", "Expired", "Denied", "Lease", "Atomic",
}

local COMMON_LEN, CHECK_LEN, AUTHENTICATION_LEN, SEGMENT_LEN, ELEMENT_LEN = 16, 4, 8, 24, 32
local BODY_LENS = { 32, 20, 0, 36, 0, 36, 0, 60 }
-- Flags that a packet of each type may have: the sum of their bits.
local ALLOWED = { 0x40, 0x4A, 0x48, 0x41, 0x71, 0x41, 0x71, 0x41 }

local f = star.fields
f.version = ProtoField.uint8("star.version", "Version", base.DEC, nil, 0xF0)
f.type = ProtoField.uint8("star.type", "Type", base.DEC, TYPES, 0x0F)
f.flags = ProtoField.uint8("star.flags", "Flags", base.HEX)
local FLAGS = {
  { "last", "Last", 0x01, "the last packet of its message" },
  { "solicited", "Solicited", 0x02, "the server's program asks to be woken" },
  { "to_server", "To server", 0x08, "the connection is a number of the server" },
  { "ecn_echo", "ECN echo", 0x10, "the packet that is answered had a congestion mark" },
  { "refused", "Refused", 0x20, "the length is a reason" },
  { "authenticated", "Authenticated", 0x40, "there is a tag in the place of the check" },
  { "reserved", "Reserved", 0x80, "must be 0" },
  { "reserved_4", "Reserved", 0x04, "must be 0" },
}
for _, flag in ipairs(FLAGS) do
  f["flag_" .. flag[1]] = ProtoField.bool("star.flags." .. flag[1], flag[2], 8, nil, flag[3], flag[4])
end
f.length = ProtoField.uint16("star.length", "Length", base.DEC)
f.reason = ProtoField.uint16("star.reason", "Reason", base.DEC, REASONS)
f.connection = ProtoField.uint32("star.connection", "Connection", base.HEX)
f.sequence = ProtoField.uint32("star.sequence", "Sequence number", base.DEC)
f.stamp = ProtoField.uint32("star.stamp", "Stamp (us of the server's clock)", base.DEC)

f.address = ProtoField.uint64("star.address", "Address", base.HEX)
f.key = ProtoField.uint32("star.key", "Memory key", base.HEX)
f.capability_base = ProtoField.uint64("star.capability.base", "First byte granted", base.HEX)
f.capability_len = ProtoField.uint64("star.capability.len", "Bytes granted", base.DEC)
f.capability_rights = ProtoField.uint8("star.capability.rights", "Rights granted (1 store, 2 fetch, 4 element, 8 atomic)", base.HEX)
f.capability_server = ProtoField.uint24("star.capability.server", "Connection at the server", base.HEX)
f.lease = ProtoField.uint32("star.lease", "End of the lease (s of the server's clock)", base.DEC)
f.stored_before = ProtoField.uint16("star.stored_before", "Stored before (bitmap)", base.HEX)

f.atomic_opcode = ProtoField.uint8("star.atomic.opcode", "Operation", base.DEC, OPCODES)
f.atomic_ticket = ProtoField.uint32("star.atomic.ticket", "Ticket", base.DEC)
f.atomic_compare = ProtoField.uint64("star.atomic.compare", "Compare", base.HEX)
f.atomic_swap_or_add = ProtoField.uint64("star.atomic.swap_or_add", "Swap or add", base.HEX)

f.opcode = ProtoField.uint8("star.wqe.opcode", "Opcode", base.DEC, OPCODES)
f.wqe_flags = ProtoField.uint8("star.wqe.flags", "Element flags", base.HEX)
local WQE_FLAGS = {
  { "signaled", "Signaled", 0x01 }, { "fence", "Fence", 0x02 }, { "solicited", "Solicited", 0x04 },
  { "inline", "Inline", 0x08 },
}
for _, flag in ipairs(WQE_FLAGS) do
  f["wqe_flag_" .. flag[1]] = ProtoField.bool("star.wqe.flags." .. flag[1], flag[2], 8, nil, flag[3])
end
f.segments = ProtoField.uint8("star.wqe.segments", "Segments", base.DEC)
f.wqe_wr_id = ProtoField.uint64("star.wqe.wr_id", "Work request", base.HEX)
f.wqe_immediate = ProtoField.bytes("star.wqe.immediate", "Immediate data")
f.wqe_invalidate = ProtoField.uint32("star.wqe.invalidate", "Key to invalidate", base.HEX)
f.wqe_address = ProtoField.uint64("star.wqe.address", "Address at the client", base.HEX)
f.wqe_key = ProtoField.uint32("star.wqe.key", "Key at the client", base.HEX)
f.wqe_len = ProtoField.uint32("star.wqe.len", "Total length", base.DEC)
f.compare = ProtoField.uint64("star.wqe.compare", "Compare", base.HEX)
f.swap_or_add = ProtoField.uint64("star.wqe.swap_or_add", "Swap or add", base.HEX)
f.inline = ProtoField.bytes("star.wqe.inline", "Inline data")
f.segment = ProtoField.none("star.segment", "Segment")
f.segment_address = ProtoField.uint64("star.segment.address", "Address", base.HEX)
f.segment_len = ProtoField.uint32("star.segment.len", "Length", base.DEC)
f.segment_lkey = ProtoField.uint32("star.segment.lkey", "Local key", base.HEX)
f.segment_code = ProtoField.uint64("star.segment.code", "Grant code", base.HEX)
f.region_code = ProtoField.uint64("star.region.code", "Grant code of the region", base.HEX)
f.masked_key = ProtoField.bytes("star.lease.masked_key", "Key of the lease, masked")
f.region_key = ProtoField.uint32("star.region.key", "Key of the region", base.HEX)
f.region_address = ProtoField.uint64("star.region.address", "Address of the region", base.HEX)
f.region_len = ProtoField.uint64("star.region.len", "Bytes of the region", base.DEC)
f.region_rights = ProtoField.uint8("star.region.rights", "Rights", base.HEX)
f.close_status = ProtoField.uint8("star.close.status", "Reason of closing", base.DEC, STATUSES)

f.cqe_wr_id = ProtoField.uint64("star.cqe.wr_id", "Work request", base.HEX)
f.cqe_status = ProtoField.uint8("star.cqe.status", "Status", base.DEC, STATUSES)
f.cqe_completed = ProtoField.uint8("star.cqe.completed", "Completed", base.DEC, COMPLETED)
f.cqe_notice = ProtoField.uint8("star.cqe.notice", "Notice", base.DEC, NOTICES)
f.cqe_len = ProtoField.uint32("star.cqe.len", "Bytes", base.DEC)
f.cqe_immediate = ProtoField.bytes("star.cqe.immediate", "Immediate data")
f.cqe_invalidate = ProtoField.uint32("star.cqe.invalidate", "Key to invalidate", base.HEX)

f.payload = ProtoField.bytes("star.payload", "Payload")
f.tag = ProtoField.uint64("star.tag", "Tag", base.HEX)
f.check = ProtoField.uint32("star.check", "Integrity check", base.HEX)
f.epoch = ProtoField.uint32("star.epoch", "Epoch that the check is right for", base.HEX)

local malformed = ProtoExpert.new("star.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
local refusal = ProtoExpert.new("star.refusal", "Refused", expert.group.RESPONSE_CODE, expert.severity.NOTE)
local other_epoch =
  ProtoExpert.new("star.other_epoch", "Damaged, or of another start", expert.group.CHECKSUM, expert.severity.WARN)
star.experts = { malformed, refusal, other_epoch }

star.prefs.epoch = Pref.string("Epoch", "", "The epoch of the server in hexadecimal: packets of another one are marked")

-- Lua 5.1, 5.2 and LuaJIT have a library of bits, later ones operators.
local library = rawget(_G, "bit32") or rawget(_G, "bit")
local xor_of = library and library.bxor or load("return function(a, b) return a ~ b end")()
local function xor(a, b)
  return xor_of(a, b) % 0x100000000
end

-- CRC-32 (polynomial 0x04C11DB7, reflected) backwards: from the register after a byte to the one before it.
local crc_table, place_of_top = {}, {}
for byte = 0, 255 do
  local crc = byte
  for _ = 1, 8 do
    local half = math.floor(crc / 2)
    crc = crc % 2 == 1 and xor(half, 0xEDB88320) or half
  end
  crc_table[byte] = crc
  place_of_top[math.floor(crc / 0x1000000)] = byte
end

local function backwards(register, bytes)
  for at = bytes:len() - 1, 0, -1 do
    local place = place_of_top[math.floor(register / 0x1000000)]
    register = xor(register, crc_table[place]) * 0x100 % 0x100000000 + xor(place, bytes:get_index(at))
  end
  return register
end

local sources = { Field.new("ip.src"), Field.new("ipv6.src") }
local destinations = { Field.new("ip.dst"), Field.new("ipv6.dst") }

-- The innermost of the addresses.
local function innermost(extractors)
  local last
  for _, extractor in ipairs(extractors) do
    for _, info in ipairs({ extractor() }) do
      if not last or info.offset > last.offset then
        last = info
      end
    end
  end
  return last and last.range:bytes()
end

local function epoch_of(tvb, check_at)
  local source, destination = innermost(sources), innermost(destinations)
  if not source or not destination then
    return nil
  end
  local register = xor(tvb(check_at, CHECK_LEN):uint(), 0xFFFFFFFF)
  register = backwards(register, tvb(0, check_at):bytes())
  register = backwards(backwards(register, destination), source)
  return xor(register, 0xFFFFFFFF)
end

local function add_flags(tree, field, prefix, table, range)
  local branch = tree:add(field, range)
  for _, flag in ipairs(table) do
    branch:add(f[prefix .. flag[1]], range)
  end
end

local function has(flags, bit)
  return math.floor(flags / bit) % 2 == 1
end

-- Dissects an element from `at` on, whose payload ends at `stop`; gives what is wrong, if anything, and a summary.
local function element(tvb, tree, at, stop)
  local opcode, flags = tvb(at, 1):uint(), tvb(at + 1, 1):uint()
  local name = OPCODES[opcode]
  tree:add(f.opcode, tvb(at, 1))
  add_flags(tree, f.wqe_flags, "wqe_flag_", WQE_FLAGS, tvb(at + 1, 1))
  if not name then
    return "unknown opcode " .. opcode, ""
  end
  if flags >= 0x10 or opcode >= 16 and flags > 0 then
    return "element flags", name
  elseif opcode == 16 then
    tree:add(f.region_rights, tvb(at + 7, 1))
    tree:add(f.region_len, tvb(at + 8, 8))
    tree:add(f.region_address, tvb(at + 16, 8))
    tree:add(f.region_key, tvb(at + 24, 4))
    if stop ~= at + ELEMENT_LEN + 8 then
      return "no grant code, or bytes after it", name
    end
    tree:add(f.region_code, tvb(at + ELEMENT_LEN, 8))
    return nil, name
  elseif opcode == 17 then
    tree:add(f.region_key, tvb(at + 24, 4))
    return stop ~= at + ELEMENT_LEN and "bytes after a control element" or nil, name
  elseif opcode == 19 then
    tree:add(f.masked_key, tvb(at + 8, 16))
    tree:add(f.lease, tvb(at + 24, 4))
    return stop ~= at + ELEMENT_LEN and "bytes after a control element" or nil, name
  elseif opcode == 20 then
    tree:add(f.region_rights, tvb(at + 7, 1))
    return stop ~= at + ELEMENT_LEN and "bytes after a control element" or nil, name
  elseif opcode == 18 then
    tree:add(f.close_status, tvb(at + 7, 1))
    if not STATUSES[tvb(at + 7, 1):uint()] then
      return "unknown reason of closing", name
    end
    return stop ~= at + ELEMENT_LEN and "bytes after a control element" or nil, name
  end
  local count, len = tvb(at + 2, 1):uint(), tvb(at + 28, 4):uint()
  tree:add(f.segments, tvb(at + 2, 1))
  if opcode == 2 or opcode == 5 then
    tree:add(f.wqe_immediate, tvb(at + 4, 4))
  elseif opcode == 3 then
    tree:add(f.wqe_invalidate, tvb(at + 4, 4))
  end
  tree:add(f.wqe_wr_id, tvb(at + 8, 8))
  if opcode >= 4 and opcode <= 8 then
    tree:add(f.wqe_address, tvb(at + 16, 8))
    tree:add(f.wqe_key, tvb(at + 24, 4))
  end
  tree:add(f.wqe_len, tvb(at + 28, 4))
  at = at + ELEMENT_LEN
  if opcode == 7 or opcode == 8 then
    if stop < at + 16 then
      return "no operands", name
    end
    tree:add(f.compare, tvb(at, 8))
    tree:add(f.swap_or_add, tvb(at + 8, 8))
    at = at + 16
  end
  local summary = name .. " Len=" .. len
  if has(flags, 0x08) then
    if opcode > 5 then
      return "inline data of " .. name, summary
    end
    if stop > at then
      tree:add(f.inline, tvb(at, stop - at))
    end
    return stop - at ~= len and "inline data of another length" or nil, summary .. " inline"
  end
  if stop - at ~= count * SEGMENT_LEN then
    return "segments of another number", summary
  end
  local sum = 0
  for nth = 1, count do
    local branch = tree:add(f.segment, tvb(at, SEGMENT_LEN))
    branch:append_text(" " .. nth)
    branch:add(f.segment_address, tvb(at, 8))
    branch:add(f.segment_len, tvb(at + 8, 4))
    branch:add(f.segment_lkey, tvb(at + 12, 4))
    branch:add(f.segment_code, tvb(at + 16, 8))
    sum = sum + tvb(at + 8, 4):uint()
    at = at + SEGMENT_LEN
  end
  return sum ~= len and "segments of another length" or nil, summary
end

local function completion(tvb, tree, at)
  local status, completed, notice = tvb(at + 8, 1):uint(), tvb(at + 9, 1):uint(), tvb(at + 10, 1):uint()
  tree:add(f.cqe_wr_id, tvb(at, 8))
  tree:add(f.cqe_status, tvb(at + 8, 1))
  tree:add(f.cqe_completed, tvb(at + 9, 1))
  tree:add(f.cqe_notice, tvb(at + 10, 1))
  tree:add(f.cqe_len, tvb(at + 12, 4))
  if notice == 1 then
    tree:add(f.cqe_immediate, tvb(at + 16, 4))
  elseif notice == 2 then
    tree:add(f.cqe_invalidate, tvb(at + 16, 4))
  end
  local known = STATUSES[status] and COMPLETED[completed] and NOTICES[notice]
  local summary = (COMPLETED[completed] or completed) .. " " .. (STATUSES[status] or status)
  return not known and "unknown status, operation or notice" or nil, summary
end

function star.dissector(tvb, pinfo, root)
  local len = tvb:len()
  if len < COMMON_LEN + CHECK_LEN then
    return 0
  end
  pinfo.cols.protocol = "StaR"
  local first, flags = tvb(0, 1):uint(), tvb(1, 1):uint()
  local version, kind = math.floor(first / 16), first % 16
  local tree = root:add(star, tvb())
  tree:add(f.version, tvb(0, 1))
  tree:add(f.type, tvb(0, 1))
  add_flags(tree, f.flags, "flag_", FLAGS, tvb(1, 1))
  local length = tvb(2, 2):uint()
  local refused = has(flags, 0x20)
  tree:add(f.length, tvb(2, 2))
  tree:add(f.connection, tvb(4, 4))
  tree:add(f.sequence, tvb(8, 4))
  tree:add(f.stamp, tvb(12, 4))

  local function fail(why)
    tree:add_proto_expert_info(malformed, why)
    pinfo.cols.info = "Malformed: " .. why
    return len
  end
  if version ~= 2 then
    return fail("version " .. version)
  end
  local name = TYPES[kind]
  if not name then
    return fail("type " .. kind)
  end
  for _, flag in ipairs(FLAGS) do
    if has(flags, flag[3]) and not has(ALLOWED[kind], flag[3]) then
      return fail("flag " .. flag[2] .. " on " .. name)
    end
  end
  if kind == CQEP and not has(flags, 0x08) then
    return fail("CQEP that is not to a server")
  end
  if tvb(4, 1):uint() > 0 then
    return fail("connection of more than 24 bits")
  end
  tree:append_text(", " .. name .. " (" .. TYPE_TITLES[kind] .. ")")

  local is_tagged = has(flags, 0x40)
  local stop = len - (is_tagged and AUTHENTICATION_LEN or CHECK_LEN)
  local at = COMMON_LEN + BODY_LENS[kind]
  if stop < at then
    return fail("cut short")
  end

  local wrong, summary = nil, ""
  local payload = 0
  if kind == WQEP then
    wrong, summary = element(tvb, tree, COMMON_LEN, stop)
    at = stop
  elseif kind == CQEP then
    wrong, summary = completion(tvb, tree, COMMON_LEN)
  elseif kind == RDP or kind == GD or kind == AOP then
    local address, key = tvb(COMMON_LEN, 8), tvb(COMMON_LEN + 8, 4)
    tree:add(f.address, address)
    tree:add(f.key, key)
    tree:add(f.capability_base, tvb(COMMON_LEN + 12, 8))
    tree:add(f.capability_len, tvb(COMMON_LEN + 20, 8))
    tree:add(f.capability_rights, tvb(COMMON_LEN + 28, 1))
    tree:add(f.capability_server, tvb(COMMON_LEN + 29, 3))
    tree:add(f.lease, tvb(COMMON_LEN + 32, 4))
    if tvb(COMMON_LEN + 28, 1):uint() > 15 then
      wrong = "unknown rights"
    end
    summary = string.format("Addr=0x%s Key=0x%x Len=%d", address:uint64():tohex(), key:uint(), length)
    payload = kind == RDP and length or 0
    if kind == AOP then
      local operation = tvb(COMMON_LEN + 36, 1):uint()
      tree:add(f.atomic_opcode, tvb(COMMON_LEN + 36, 1))
      tree:add(f.atomic_ticket, tvb(COMMON_LEN + 40, 4))
      tree:add(f.atomic_compare, tvb(COMMON_LEN + 44, 8))
      tree:add(f.atomic_swap_or_add, tvb(COMMON_LEN + 52, 8))
      if operation ~= 7 and operation ~= 8 then
        wrong = "unknown opcode " .. operation
      elseif length ~= 8 then
        wrong = "length on " .. name
      end
      summary = summary .. " " .. (OPCODES[operation] or operation) .. " Ticket=" .. tvb(COMMON_LEN + 40, 4):uint()
    end
  elseif refused and (kind == RA or kind == SDP) then
    tree:add(f.reason, tvb(2, 2))
    summary = "Refused: " .. (REASONS[length] or length)
    tree:add_proto_expert_info(refusal, summary)
    wrong = not REASONS[length] and "unknown reason" or nil
  elseif kind == RA then
    tree:add(f.stored_before, tvb(2, 2))
    summary = string.format("Before=0x%04x", length)
  elseif kind == SDP then
    summary = "Len=" .. length
    payload = length
  end
  if kind == WQEP then
    local operands = ({ [7] = 16, [8] = 16, [16] = 8 })[tvb(COMMON_LEN, 1):uint()] or 0
    if not wrong and stop - COMMON_LEN - ELEMENT_LEN - operands ~= length then
      wrong = "length of another number of bytes"
    end
  elseif (kind == CQEP or kind == EA) and length > 0 then
    wrong = "length on " .. name
  end
  if not wrong and stop - at ~= payload then
    wrong = (stop - at) .. " bytes of payload where the header says " .. payload
  end
  if payload > 0 and not wrong then
    tree:add(f.payload, tvb(at, payload))
  end

  local check_at, epoch = stop, nil
  if is_tagged then
    tree:add(f.tag, tvb(stop, AUTHENTICATION_LEN))
  else
    tree:add(f.check, tvb(check_at, CHECK_LEN))
    epoch = epoch_of(tvb, check_at)
  end
  if epoch then
    tree:add(f.epoch, tvb(check_at, CHECK_LEN), epoch):set_generated()
    local expected = tonumber((star.prefs.epoch:gsub("^0[xX]", "")), 16)
    if expected and expected ~= epoch then
      tree:add_proto_expert_info(other_epoch)
    end
  end
  if wrong then
    return fail(wrong)
  end
  pinfo.cols.info =
    string.format("%s Conn=0x%x Seq=%d %s", name, tvb(4, 4):uint(), tvb(8, 4):uint(), summary)
  return len
end

-- Live adapters send from RoCE's port, and Wireshark asks the dissector of the lower port first.
local ports = DissectorTable.get("udp.port")
local roce = ports:get_dissector(4791)
local of_either = Proto("star_or_roce", "StaR or RoCE, by the destination port")
function of_either.dissector(tvb, pinfo, root)
  local dissector = pinfo.dst_port == 4793 and Dissector.get("star") or roce
  return dissector:call(tvb, pinfo, root)
end

ports:add(4793, star)
ports:add(4791, of_either)
