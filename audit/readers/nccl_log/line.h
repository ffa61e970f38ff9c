// Parses the messages of NCCL_DEBUG=INFO: sender and text.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace plumbline::audit {

// A message "host:4242:4250 [3] NCCL INFO text". Members are views into the line.
struct NcclMessage {
  std::string_view process;  // "host:4242"
  std::string_view thread;   // "host:4242:4250"
  int device = -1;
  std::string_view text;
  bool cut = false;  // the message is the last one of a line without a line end
};

// Splits a line into its messages: none, one, or several if processes wrote into each other's
// lines.
void SplitNcclLine(std::string_view line, bool ended, std::vector<NcclMessage>* messages);

enum class NcclCollective : uint8_t {
  kAllReduce,
  kReduceScatter,
  kReduce,
  kBroadcast,
  kAllGather,
  kOther,  // a collective of a newer version of NCCL
};
const char* SiteNameOf(NcclCollective collective);  // "all_reduce"

// A call "AllReduce: opCount 1a sendbuff 0x.. recvbuff 0x.. count 1024 datatype 7 op 0 root 0 comm
// 0x.. [nranks=8] stream 0x..".
struct NcclCall {
  NcclCollective collective = NcclCollective::kOther;
  uint64_t number = 0;  // opCount
  uint64_t count = 0;
  uint32_t datatype = 0;  // ncclDataType_t
  uint32_t op = 0;        // ncclRedOp_t
  uint32_t root = 0;
  uint64_t comm = 0;    // a pointer in the memory of its process
  uint32_t nranks = 0;  // 0: not stated
};
// Kind of a text that looks like a call.
enum class NcclCallKind { kNone, kCall, kPointToPoint, kDamaged };
NcclCallKind ParseNcclCall(std::string_view text, NcclCall* call);

// A creation "comm 0x.. rank 0 nranks 8 cudaDev 0 ... commId 0x.. - Init START" (or COMPLETE).
struct NcclInit {
  bool complete = false;
  uint64_t comm = 0;
  uint32_t rank = 0, nranks = 0;
  int device = -1;       // 0 if not stated
  uint64_t comm_id = 0;  // 0: not stated (before NCCL 2.18)
  bool split = false;    // made by a split of `parent`: number `child`, with the colour `color`
  uint64_t parent = 0, child = 0;
  int64_t color = 0;
};
std::optional<NcclInit> ParseNcclInit(std::string_view text);

// Returns the pointer in "comm 0x.. rank 0 nranks 8 ... - Destroy COMPLETE" (or Abort). Returns 0
// for any other text.
uint64_t ParseNcclEnd(std::string_view text);

// Parses the ring of a channel, "Channel 00/02 :    0   1   2   3". Returns false for any other
// text.
struct NcclRing {
  uint32_t channel = 0, channels = 0;
  std::vector<uint32_t> ranks;
};
bool ParseNcclRing(std::string_view text, NcclRing* ring);

}  // namespace plumbline::audit
