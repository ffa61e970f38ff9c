#include "audit/readers/kineto/event.h"

#include <algorithm>
#include <array>

namespace plumbline::audit {
namespace {

bool EqualIgnoringCase(std::string_view a, std::string_view lower) {
  return a.size() == lower.size() &&
         std::equal(a.begin(), a.end(), lower.begin(), [](char x, char y) {
           return (x >= 'A' && x <= 'Z' ? static_cast<char>(x | 0x20) : x) == y;
         });
}

struct NamedCategory {
  std::string_view name;
  TraceCategory category;
};
// Names of categories in all versions of Kineto. An event of an unknown category is a host event.
constexpr std::array kCategories = {
    NamedCategory{"cpu_op", TraceCategory::kHost},
    NamedCategory{"kernel", TraceCategory::kKernel},
    NamedCategory{"cuda_runtime", TraceCategory::kRuntime},
    NamedCategory{"ac2g", TraceCategory::kIgnored},
    NamedCategory{"python_function", TraceCategory::kHost},
    NamedCategory{"gpu_memcpy", TraceCategory::kCopy},
    NamedCategory{"gpu_memset", TraceCategory::kMemset},
    NamedCategory{"cuda_driver", TraceCategory::kRuntime},
    NamedCategory{"hip_runtime", TraceCategory::kRuntime},
    NamedCategory{"xpu_runtime", TraceCategory::kRuntime},
    NamedCategory{"runtime", TraceCategory::kRuntime},
    NamedCategory{"memcpy", TraceCategory::kCopy},
    NamedCategory{"memset", TraceCategory::kMemset},
    NamedCategory{"gpu_user_annotation", TraceCategory::kIgnored},
    NamedCategory{"async_gpu", TraceCategory::kIgnored},
    NamedCategory{"async", TraceCategory::kIgnored},
    NamedCategory{"fwdbwd", TraceCategory::kIgnored},
    NamedCategory{"forward_backward", TraceCategory::kIgnored},
    NamedCategory{"async_cpu_to_gpu", TraceCategory::kIgnored},
    NamedCategory{"overhead", TraceCategory::kIgnored},
    NamedCategory{"cuda_sync", TraceCategory::kIgnored},
    NamedCategory{"trace", TraceCategory::kIgnored},
};

// Returns true for categories whose arguments are needed.
bool WantsArguments(TraceCategory category) { return category < TraceCategory::kHost; }

bool ReadRanks(JsonScan* scan, std::string_view* ranks) {
  if (scan->Peek() == '"') return scan->String(ranks);
  const char* begin = scan->at();
  if (!scan->Skip()) return false;
  *ranks = {begin, static_cast<size_t>(scan->at() - begin)};
  return true;
}

// Reads a scalar; skips any other value.
bool ReadText(JsonScan* scan, std::string_view* text) {
  const char next = scan->Peek();
  return next == '{' || next == '[' ? scan->Skip() : scan->Scalar(text);
}

// Reads an integer; -1 for any other value.
bool ReadCount(JsonScan* scan, int64_t* count) {
  std::string_view raw;
  if (!ReadText(scan, &raw)) return false;
  if (!WholeOf(raw, count)) *count = -1;
  return true;
}

bool ReadArguments(JsonScan* scan, TraceEvent* event) {
  if (!scan->Take('{', "'{'")) return false;
  bool first = true;
  std::string_view key, raw;
  while (scan->NextMember(&first, &key)) {
    bool read = true;
    if (key == "correlation") {
      read = scan->Scalar(&raw);
      if (read && !WholeOf(raw, &event->correlation)) event->correlation = -1;
    } else if (key == "stream") {
      read = scan->Scalar(&event->stream);
    } else if (key == "device") {
      read = scan->Scalar(&event->device);
    } else if (key == "Collective name") {
      read = scan->Scalar(&event->collective);
    } else if (key == "dtype") {
      read = ReadText(scan, &event->dtype);
    } else if (key == "In msg nelems") {
      read = ReadCount(scan, &event->elements_in);
    } else if (key == "Out msg nelems") {
      read = ReadCount(scan, &event->elements_out);
    } else if (key == "Group size") {
      read = ReadCount(scan, &event->group_size);
    } else if (key == "Process Group Name") {
      read = scan->Scalar(&event->group);
    } else if (key == "Process Group Ranks") {
      read = ReadRanks(scan, &event->group_ranks);
    } else {
      read = scan->Skip();
    }
    if (!read) return false;
  }
  return !scan->failed();
}

bool ReadTime(JsonScan* scan, bool* has, int64_t* ns) {
  const char next = scan->Peek();
  if (next == '{' || next == '[') return scan->Skip();
  std::string_view raw;
  if (!scan->Scalar(&raw)) return false;
  *has = NanosecondsOf(raw, ns);
  return true;
}

bool ReadMember(JsonScan* scan, std::string_view key, TraceEvent* event) {
  std::string_view raw;
  if (key == "ph") {
    if (!ReadText(scan, &raw)) return false;
    event->phase = raw.size() == 1 ? raw[0] : '?';
    return true;
  }
  if (key == "cat") {
    if (!ReadText(scan, &raw)) return false;
    event->category = CategoryOf(raw);
    return true;
  }
  if (key == "ts") return ReadTime(scan, &event->has_start, &event->start_ns);
  if (key == "dur") return ReadTime(scan, &event->has_duration, &event->duration_ns);
  if (key == "name") return ReadText(scan, &event->name);
  if (key == "pid") return ReadText(scan, &event->process);
  if (key == "tid") return ReadText(scan, &event->thread);
  if (key == "args" && WantsArguments(event->category) &&
      (event->phase == 'X' || event->phase == 0) && scan->Peek() == '{')
    return ReadArguments(scan, event);
  return scan->Skip();
}

}  // namespace

TraceCategory CategoryOf(std::string_view category) {
  for (const NamedCategory& known : kCategories) {
    if (EqualIgnoringCase(category, known.name)) return known.category;
  }
  return TraceCategory::kHost;
}

bool ReadEvent(JsonScan* scan, TraceEvent* event) {
  if (!scan->Take('{', "an event, '{'")) return false;
  bool first = true;
  std::string_view key;
  while (scan->NextMember(&first, &key)) {
    if (!ReadMember(scan, key, event)) return false;
  }
  return !scan->failed();
}

}  // namespace plumbline::audit
