#include "audit/readers/nccl_log/line.h"

#include <array>
#include <charconv>
#include <limits>

namespace plumbline::audit {
namespace {

constexpr std::string_view kInfo = "NCCL INFO ";
constexpr uint32_t kMostRanks = 1u << 17;  // a limit of the engine

bool IsDecimal(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Parses the whole of `text` as a number.
template <typename Number>
bool Whole(std::string_view text, Number* value, int base = 10) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

bool Pointer(std::string_view text, uint64_t* value) {
  return text.starts_with("0x") && Whole(text.substr(2), value, 16);
}

// Returns the next word; "" at the end.
std::string_view NextWord(std::string_view* text) {
  const size_t begin = text->find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return *text = {};
  const size_t end = std::min(text->find_first_of(" \t\r", begin), text->size());
  const std::string_view word = text->substr(begin, end - begin);
  text->remove_prefix(end);
  return word;
}

// Returns the word before `end`, and sets *begin to its beginning.
std::string_view WordBefore(std::string_view text, size_t end, size_t* begin) {
  while (end > 0 && text[end - 1] == ' ') --end;
  size_t at = end;
  while (at > 0 && text[at - 1] != ' ' && text[at - 1] != '\t') --at;
  *begin = at;
  return text.substr(at, end - at);
}

// Reads "host:4242:4250 [3]" before the position `info`. Returns where it begins.
size_t ReadHeader(std::string_view line, size_t info, NcclMessage* message) {
  size_t begin = info;
  const std::string_view device = WordBefore(line, info, &begin);
  if (device.size() < 3 || device.front() != '[' || device.back() != ']') return info;
  int number = -1;
  if (!Whole(device.substr(1, device.size() - 2), &number)) return info;
  const size_t mark = begin;
  const std::string_view thread = WordBefore(line, mark, &begin);
  const size_t last = thread.rfind(':');
  if (last == std::string_view::npos || last == 0) return info;
  const size_t middle = thread.rfind(':', last - 1);
  if (middle == std::string_view::npos || !IsDecimal(thread.substr(last + 1)) ||
      !IsDecimal(thread.substr(middle + 1, last - middle - 1)))
    return info;
  message->device = number;
  message->thread = thread;
  message->process = thread.substr(0, last);
  return begin;
}

struct Named {
  std::string_view name;
  NcclCollective collective;
};
constexpr Named kCollectives[] = {
    {"AllReduce", NcclCollective::kAllReduce}, {"ReduceScatter", NcclCollective::kReduceScatter},
    {"Reduce", NcclCollective::kReduce},       {"Broadcast", NcclCollective::kBroadcast},
    {"AllGather", NcclCollective::kAllGather},
};

NcclCollective CollectiveOf(std::string_view name) {
  for (const Named& known : kCollectives) {
    if (known.name == name) return known.collective;
  }
  return NcclCollective::kOther;
}

}  // namespace

const char* SiteNameOf(NcclCollective collective) {
  switch (collective) {
    case NcclCollective::kAllReduce:
      return "all_reduce";
    case NcclCollective::kReduceScatter:
      return "reduce_scatter";
    case NcclCollective::kReduce:
      return "reduce";
    case NcclCollective::kBroadcast:
      return "broadcast";
    case NcclCollective::kAllGather:
      return "all_gather";
    default:
      return "collective";
  }
}

void SplitNcclLine(std::string_view line, bool ended, std::vector<NcclMessage>* messages) {
  messages->clear();
  for (size_t info = line.find(kInfo); info != std::string_view::npos;) {
    NcclMessage message;
    const size_t begin = ReadHeader(line, info, &message);
    // If another process wrote this message into the preceding one, the preceding one ends here.
    if (!messages->empty()) {
      std::string_view& text = messages->back().text;
      text = text.substr(0, static_cast<size_t>(line.data() + begin - text.data()));
      messages->back().cut = false;
    }
    message.text = line.substr(info + kInfo.size());
    message.cut = !ended;
    info = line.find(kInfo, info + kInfo.size());
    messages->push_back(message);
  }
}

NcclCallKind ParseNcclCall(std::string_view text, NcclCall* call) {
  const size_t colon = text.find(": opCount ");
  if (colon == std::string_view::npos || colon > 32) return NcclCallKind::kNone;
  const std::string_view name = text.substr(0, colon);
  if (name == "Send" || name == "Recv") return NcclCallKind::kPointToPoint;
  *call = {};
  call->collective = CollectiveOf(name);
  text.remove_prefix(colon + 1);
  // Requires every field exactly once and complete, up to the stream at the end. So it refuses
  // truncated lines, and lines into which another process wrote.
  unsigned seen = 0;
  enum : unsigned {
    kNumber = 1,
    kCount = 2,
    kType = 4,
    kOp = 8,
    kRoot = 16,
    kComm = 32,
    kAll = 63
  };
  const auto once = [&seen](unsigned field, bool read) {
    const bool fits = read && (seen & field) == 0;
    seen |= field;
    return fits;
  };
  while (true) {
    const std::string_view key = NextWord(&text);
    if (key.empty()) return NcclCallKind::kDamaged;
    if (key.starts_with("[nranks=")) {
      if (!key.ends_with(']') || !Whole(key.substr(8, key.size() - 9), &call->nranks))
        return NcclCallKind::kDamaged;
      continue;
    }
    const std::string_view value = NextWord(&text);
    if (value.empty()) return NcclCallKind::kDamaged;
    bool fits = true;
    if (key == "opCount") {
      fits = once(kNumber, Whole(value, &call->number, 16));
    } else if (key == "count") {
      fits = once(kCount, Whole(value, &call->count));
    } else if (key == "datatype") {
      fits = once(kType, Whole(value, &call->datatype));
    } else if (key == "op") {
      fits = once(kOp, Whole(value, &call->op));
    } else if (key == "root") {
      fits = once(kRoot, Whole(value, &call->root));
    } else if (key == "comm") {
      fits = once(kComm, Pointer(value, &call->comm));
    } else if (key == "stream") {
      break;
    }
    if (!fits) return NcclCallKind::kDamaged;
  }
  return seen == kAll && call->nranks <= kMostRanks ? NcclCallKind::kCall : NcclCallKind::kDamaged;
}

std::optional<NcclInit> ParseNcclInit(std::string_view text) {
  const bool complete = text.find("- Init COMPLETE") != std::string_view::npos;
  if (!complete && text.find("- Init START") == std::string_view::npos) return std::nullopt;
  NcclInit init;
  init.complete = complete;
  bool comm = false, rank = false, nranks = false;
  for (std::string_view key = NextWord(&text); !key.empty() && key != "-"; key = NextWord(&text)) {
    std::string_view after = text;
    const std::string_view value = NextWord(&after);
    bool fits = true;
    if (key == "comm") {
      fits = comm = Pointer(value, &init.comm);
    } else if (key == "rank") {
      fits = rank = Whole(value, &init.rank);
    } else if (key == "nranks") {
      fits = nranks = Whole(value, &init.nranks);
    } else if (key == "cudaDev") {
      fits = Whole(value, &init.device);
    } else if (key == "commId") {
      fits = Pointer(value, &init.comm_id);
    } else if (key == "parent") {
      fits = init.split = Pointer(value, &init.parent);
    } else if (key == "splitCount" || key == "childCount") {
      fits = Whole(value, &init.child);
    } else if (key == "color") {
      fits = Whole(value, &init.color);
    } else {
      continue;  // skips an unknown word; its value is then also skipped as an unknown key
    }
    if (!fits) return std::nullopt;
    text = after;
  }
  if (!comm || !rank || !nranks || init.rank >= init.nranks || init.nranks > kMostRanks)
    return std::nullopt;
  return init;
}

uint64_t ParseNcclEnd(std::string_view text) {
  if (text.find(" - Destroy COMPLETE") == std::string_view::npos &&
      text.find(" - Abort COMPLETE") == std::string_view::npos)
    return 0;
  uint64_t comm = 0;
  for (std::string_view key = NextWord(&text); !key.empty(); key = NextWord(&text)) {
    if (key == "comm") return Pointer(NextWord(&text), &comm) ? comm : 0;
  }
  return 0;
}

bool ParseNcclRing(std::string_view text, NcclRing* ring) {
  if (NextWord(&text) != "Channel") return false;
  const std::string_view which = NextWord(&text);
  const size_t slash = which.find('/');
  if (slash == std::string_view::npos || !Whole(which.substr(0, slash), &ring->channel) ||
      !Whole(which.substr(slash + 1), &ring->channels) || NextWord(&text) != ":")
    return false;
  ring->ranks.clear();
  for (std::string_view word = NextWord(&text); !word.empty(); word = NextWord(&text)) {
    uint32_t rank = 0;
    if (!Whole(word, &rank) || ring->ranks.size() == kMostRanks) return false;
    ring->ranks.push_back(rank);
  }
  return !ring->ranks.empty() && ring->channel < ring->channels;
}

}  // namespace plumbline::audit
