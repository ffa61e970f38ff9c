// One message of NCCL_DEBUG=INFO: who says it, and what it says.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace plumbline::audit {

// "host:4242:4250 [3] NCCL INFO text". Views into the line.
struct NcclMessage {
  std::string_view process;  // "host:4242"
  std::string_view thread;   // "host:4242:4250"
  int device = -1;
  std::string_view text;
  bool cut = false;  // the line ends with it and was not ended itself
};

// The messages of a line: none, one, or several where processes wrote into one another's lines.
void SplitNcclLine(std::string_view line, bool ended, std::vector<NcclMessage>* messages);

enum class NcclCollective : uint8_t {
  kAllReduce,
  kReduceScatter,
  kReduce,
  kBroadcast,
  kAllGather,
  kOther,  // a collective of a later version
};
const char* SiteNameOf(NcclCollective collective);  // "all_reduce"

// "AllReduce: opCount 1a sendbuff 0x.. recvbuff 0x.. count 1024 datatype 7 op 0 root 0 comm 0x..
// [nranks=8] stream 0x..".
struct NcclCall {
  NcclCollective collective = NcclCollective::kOther;
  uint64_t number = 0;  // opCount
  uint64_t count = 0;
  uint32_t datatype = 0;  // ncclDataType_t
  uint32_t op = 0;        // ncclRedOp_t
  uint32_t root = 0;
  uint64_t comm = 0;    // a pointer of its process
  uint32_t nranks = 0;  // 0: not said
};
// What a text is that looks like a call.
enum class NcclCallKind { kNone, kCall, kPointToPoint, kDamaged };
NcclCallKind ParseNcclCall(std::string_view text, NcclCall* call);

// "comm 0x.. rank 0 nranks 8 cudaDev 0 ... commId 0x.. - Init START" (or COMPLETE).
struct NcclInit {
  bool complete = false;
  uint64_t comm = 0;
  uint32_t rank = 0, nranks = 0;
  int device = -1;       // 0 where it is not said
  uint64_t comm_id = 0;  // 0: not said (before NCCL 2.18)
  bool split = false;    // of `parent`: the child'th time, into `color`
  uint64_t parent = 0, child = 0;
  int64_t color = 0;
};
std::optional<NcclInit> ParseNcclInit(std::string_view text);

// "comm 0x.. rank 0 nranks 8 ... - Destroy COMPLETE" (or Abort): the pointer; 0: another text.
uint64_t ParseNcclEnd(std::string_view text);

// "Channel 00/02 :    0   1   2   3": the ring of a channel; false: another text.
struct NcclRing {
  uint32_t channel = 0, channels = 0;
  std::vector<uint32_t> ranks;
};
bool ParseNcclRing(std::string_view text, NcclRing* ring);

}  // namespace plumbline::audit
