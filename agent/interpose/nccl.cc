// NCCL. A collective is counted before the call, so that a call that never returns is recorded.
#include <cstring>

#include "agent/interpose/interpose.h"
#include "agent/interpose/numbers.h"

namespace plumbline::interpose {
namespace {

void NoteCollective(CallFunction function, Word datatype, int op, Word count, Word root,
                    Word comm) {
  CallKind kind{.function = function, .a = AsByte(datatype), .comm = CommOf(comm)};
  if (op >= 0) kind.op = op < kNcclNamedOps ? static_cast<uint8_t>(op) : kPreMulSumOp;
  CountCollective(WordOf(kind), kind.comm, count, static_cast<uint32_t>(root));
}

// Without a count of elements: the two sides need not agree with other ranks.
void NotePointToPoint(CallFunction function, Word datatype, Word comm) {
  Count({.function = function, .a = AsByte(datatype), .comm = CommOf(comm)});
}

// FNV-1a; never 0, which is an unknown id.
uint64_t Hash(uint64_t hash, const void* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100'0000'01b3u;
  return hash == 0 ? 1 : hash;
}
constexpr uint64_t kHashStart = 0xcbf2'9ce4'8422'2325u;

// Records a communicator that was created: its id is the same on all ranks. 0 ranks: not known.
void NoteComm(uint64_t comm, uint64_t id, int ranks, int rank) {
  const uint8_t index = CommOf(comm);
  if (index == kNoCallNumber) return;
  CallComm& at = Table()->comms[index];
  at.id = id;
  at.ranks = static_cast<uint32_t>(ranks);
  at.rank = rank;
}

// The pointer may be used again by another communicator; the counts stay.
void NoteEnd(uint64_t comm) {
  CallTable* table = Table();
  if (table == nullptr || comm == 0) return;
  for (CallComm& at : table->comms)
    if (at.pointer.load(std::memory_order_relaxed) == comm) at.pointer.store(0);
}

// The communicator that is split, before the call.
struct Parent {
  uint64_t id = 0;
  uint32_t split = 0;
  int rank = -1;
};

// Takes the number of the next split of a communicator. All ranks split in the same order.
Parent TakeSplit(uint64_t comm) {
  const uint8_t index = CommOf(comm);
  if (index == kNoCallNumber) return {};
  CallComm& at = Table()->comms[index];
  return {at.id, at.splits.fetch_add(1, std::memory_order_relaxed), at.rank};
}

// The id of a part follows from the parent's id, the number of the split and the color. The size
// and the rank are computed later from the keys of all processes.
void NoteSplit(const Parent& parent, uint64_t comm, int color, int key) {
  if (parent.id == 0) return;
  const uint32_t which[] = {parent.split, static_cast<uint32_t>(color)};
  NoteComm(comm, Hash(parent.id, which, sizeof(which)), 0, -1);
  const uint8_t index = CommOf(comm);
  if (index == kNoCallNumber) return;
  CallComm& at = Table()->comms[index];
  at.parent = parent.id;
  at.key = key;
  at.parent_rank = static_cast<uint32_t>(parent.rank);
}

}  // namespace

PLUMB_INTERPOSE(int, ncclAllReduce,
                (Word send, Word receive, Word count, Word datatype, Word op, Word comm,
                 Word stream),
                (send, receive, count, datatype, op, comm, stream),
                NoteCollective(CallFunction::ncclAllReduce, datatype, AsInt(op), count, 0, comm))
PLUMB_INTERPOSE(int, ncclReduceScatter,
                (Word send, Word receive, Word count, Word datatype, Word op, Word comm,
                 Word stream),
                (send, receive, count, datatype, op, comm, stream),
                NoteCollective(CallFunction::ncclReduceScatter, datatype, AsInt(op), count, 0,
                               comm))
PLUMB_INTERPOSE(int, ncclAllGather,
                (Word send, Word receive, Word count, Word datatype, Word comm, Word stream),
                (send, receive, count, datatype, comm, stream),
                NoteCollective(CallFunction::ncclAllGather, datatype, -1, count, 0, comm))
PLUMB_INTERPOSE(int, ncclReduce,
                (Word send, Word receive, Word count, Word datatype, Word op, Word root, Word comm,
                 Word stream),
                (send, receive, count, datatype, op, root, comm, stream),
                NoteCollective(CallFunction::ncclReduce, datatype, AsInt(op), count, root, comm))
PLUMB_INTERPOSE(int, ncclBroadcast,
                (Word send, Word receive, Word count, Word datatype, Word root, Word comm,
                 Word stream),
                (send, receive, count, datatype, root, comm, stream),
                NoteCollective(CallFunction::ncclBroadcast, datatype, -1, count, root, comm))
PLUMB_INTERPOSE(int, ncclBcast,
                (Word buffer, Word count, Word datatype, Word root, Word comm, Word stream),
                (buffer, count, datatype, root, comm, stream),
                NoteCollective(CallFunction::ncclBcast, datatype, -1, count, root, comm))
PLUMB_INTERPOSE(int, ncclSend,
                (Word buffer, Word count, Word datatype, Word peer, Word comm, Word stream),
                (buffer, count, datatype, peer, comm, stream),
                NotePointToPoint(CallFunction::ncclSend, datatype, comm))
PLUMB_INTERPOSE(int, ncclRecv,
                (Word buffer, Word count, Word datatype, Word peer, Word comm, Word stream),
                (buffer, count, datatype, peer, comm, stream),
                NotePointToPoint(CallFunction::ncclRecv, datatype, comm))
PLUMB_INTERPOSE(int, ncclGroupStart, (), (), Count({.function = CallFunction::ncclGroupStart}))
PLUMB_INTERPOSE(int, ncclGroupEnd, (), (), Count({.function = CallFunction::ncclGroupEnd}))
PLUMB_INTERPOSE(int, ncclRedOpCreatePreMulSum,
                (Word op, Word scalar, Word datatype, Word residence, Word comm),
                (op, scalar, datatype, residence, comm),
                Count({.function = CallFunction::ncclRedOpCreatePreMulSum,
                       .a = AsByte(datatype),
                       .comm = CommOf(comm)}))
PLUMB_INTERPOSE(int, ncclCommDestroy, (Word comm), (comm), NoteEnd(comm))
PLUMB_INTERPOSE(int, ncclCommAbort, (Word comm), (comm), NoteEnd(comm))

// Functions that create communicators. What they wrote is read after the call. With a nonblocking
// configuration (ncclInProgress) the pointer is set already.
#define PLUMB_NEXT(ret, name, parameters) \
  reinterpret_cast<ret(*) parameters>(    \
      NextOf(CallFunction::name, #name, __builtin_return_address(0)))

PLUMB_EXPORT int ncclCommInitRank(uint64_t* comm, Word ranks, NcclUniqueId id, Word rank) {
  const auto next = PLUMB_NEXT(int, ncclCommInitRank, (uint64_t*, Word, NcclUniqueId, Word));
  const Call call(__builtin_frame_address(0));
  const int status = next(comm, ranks, id, rank);
  if (call.outermost() && status == kNcclSuccess && comm != nullptr)
    NoteComm(*comm, Hash(kHashStart, id.bytes, sizeof(id.bytes)), AsInt(ranks), AsInt(rank));
  return status;
}

PLUMB_EXPORT int ncclCommInitRankConfig(uint64_t* comm, Word ranks, NcclUniqueId id, Word rank,
                                        Word config) {
  const auto next =
      PLUMB_NEXT(int, ncclCommInitRankConfig, (uint64_t*, Word, NcclUniqueId, Word, Word));
  const Call call(__builtin_frame_address(0));
  const int status = next(comm, ranks, id, rank, config);
  constexpr int kInProgress = 7;
  const bool made = status == kNcclSuccess || status == kInProgress;
  if (call.outermost() && made && comm != nullptr)
    NoteComm(*comm, Hash(kHashStart, id.bytes, sizeof(id.bytes)), AsInt(ranks), AsInt(rank));
  return status;
}

PLUMB_EXPORT int ncclCommInitAll(uint64_t* comms, Word devices, Word list) {
  const auto next = PLUMB_NEXT(int, ncclCommInitAll, (uint64_t*, Word, Word));
  const Call call(__builtin_frame_address(0));
  const int status = next(comms, devices, list);
  if (!call.outermost() || status != kNcclSuccess || comms == nullptr) return status;
  const CallTable* table = Table();
  if (table == nullptr) return status;
  const uint64_t own[] = {static_cast<uint64_t>(table->pid), comms[0]};
  for (int i = 0; i < AsInt(devices); ++i)
    NoteComm(comms[i], Hash(kHashStart, own, sizeof(own)), AsInt(devices), i);
  return status;
}

PLUMB_EXPORT int ncclCommSplit(Word comm, Word color, Word key, uint64_t* created, Word config) {
  const auto next = PLUMB_NEXT(int, ncclCommSplit, (Word, Word, Word, uint64_t*, Word));
  const Call call(__builtin_frame_address(0));
  const Parent parent = call.outermost() ? TakeSplit(comm) : Parent{};
  const int status = next(comm, color, key, created, config);
  constexpr int kInProgress = 7;
  const bool made = status == kNcclSuccess || status == kInProgress;
  if (call.outermost() && made && AsInt(color) != kNcclNoColor && created != nullptr)
    NoteSplit(parent, *created, AsInt(color), AsInt(key));
  return status;
}

}  // namespace plumbline::interpose
