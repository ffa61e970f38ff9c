#include "audit/readers/kineto/trace_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {
namespace {

constexpr size_t kWindow = 1u << 20, kMostWindow = 64u << 20;
constexpr uint64_t kAtOnce = 4u << 20;  // bytes that a call of ReadOn reads

}  // namespace

TraceFile::TraceFile(std::unique_ptr<ByteStream> stream, InputReport* report)
    : stream_(std::move(stream)), report_(report) {
  window_.assign(kWindow + JsonScan::kPadding, '\0');
}

bool TraceFile::Fill() {
  // Move the unread part to the front. If it fills the window, enlarge the window.
  std::memmove(window_.data(), window_.data() + begin_, end_ - begin_);
  window_at_ += begin_;
  end_ -= begin_;
  begin_ = 0;
  size_t room = window_.size() - JsonScan::kPadding;
  if (end_ == room) {
    if (room >= kMostWindow) return false;
    window_.resize(2 * room + JsonScan::kPadding, '\0');
    room *= 2;
  }
  const size_t before = end_;
  while (end_ < room) {
    const size_t got = stream_->Read(window_.data() + end_, room - end_);
    if (got == 0) break;
    end_ += got;
  }
  std::memset(window_.data() + end_, 0, JsonScan::kPadding);
  return end_ > before;
}

bool TraceFile::ReadOn() {
  const uint64_t until = window_at_ + begin_ + kAtOnce;
  while (place_ != Place::kDone && window_at_ + begin_ < until) {
    JsonScan scan(window_.data() + begin_, window_.data() + end_);
    bool read = false;
    switch (place_) {
      case Place::kStart:
        read = Start(&scan);
        break;
      case Place::kMembers:
        read = Member(&scan);
        break;
      case Place::kEvents:
        read = Event(&scan);
        break;
      default:
        read = End(&scan);
    }
    if (read) {
      begin_ = static_cast<size_t>(scan.at() - window_.data());
      continue;
    }
    // Filling moves the window, which invalidates the scan's pointers.
    const uint64_t at = window_at_ + static_cast<uint64_t>(scan.at() - window_.data());
    if (scan.cut() && Fill()) continue;
    Failed(scan, at);
    place_ = Place::kDone;
  }
  if (place_ == Place::kDone) Close();
  return place_ != Place::kDone;
}

void TraceFile::Failed(const JsonScan& scan, uint64_t at) {
  if (const auto& problem = stream_->problem()) {
    report_->Add(problem->offset, problem->text);
  } else if (scan.cut()) {
    const bool too_long = end_ - begin_ >= kMostWindow;
    report_->Add(at, std::string("expected ") + scan.expected() +
                         (too_long ? " within 64 MiB" : ", found the end of the file"));
  } else {
    report_->Add(at,
                 std::string("expected ") + scan.expected() + ", found " +
                     Quoted({scan.at(), std::min<size_t>(16, window_.data() + end_ - scan.at())}));
  }
}

bool TraceFile::Start(JsonScan* scan) {
  // Editors may add a byte order mark. The window is readable past its end.
  if (std::memcmp(scan->at(), kByteOrderMark.data(), kByteOrderMark.size()) == 0)
    *scan = JsonScan(scan->at() + kByteOrderMark.size(), window_.data() + end_);
  bare_ = scan->Peek() == '[';
  if (!scan->Take(bare_ ? '[' : '{', "a trace, '{' or '['")) return false;
  place_ = bare_ ? Place::kEvents : Place::kMembers;
  saw_events_ = bare_;
  first_ = true;
  return true;
}

bool TraceFile::Member(JsonScan* scan) {
  bool first = first_;  // stored in first_ only after the member is complete
  std::string_view key;
  if (!scan->NextMember(&first, &key)) {
    if (scan->failed()) return false;
    place_ = Place::kEnd;
    return true;
  }
  if (key == "traceEvents") {
    if (!scan->Take('[', "a list of events, '['")) return false;
    place_ = Place::kEvents;
    saw_events_ = true;
    first_ = true;
    return true;
  }
  scan->Peek();
  const char* begin = scan->at();
  const bool process = key == "distributedInfo";
  if (!scan->Skip()) return false;
  if (process) TakeProcess({begin, static_cast<size_t>(scan->at() - begin)});
  first_ = false;
  return true;
}

bool TraceFile::Event(JsonScan* scan) {
  // Read as many events as the window holds completely.
  while (true) {
    const char* begin = scan->at();
    const bool first = first_;
    if (!scan->NextElement(&first_)) {
      if (!scan->failed()) {
        place_ = bare_ ? Place::kEnd : Place::kMembers;
        first_ = false;
        return true;
      }
    } else {
      TraceEvent event;
      if (ReadEvent(scan, &event)) {
        ++report_->records;
        keeper_.Take(event);
        continue;
      }
    }
    // All events before this one are processed.
    begin_ = static_cast<size_t>(begin - window_.data());
    first_ = first;
    return false;
  }
}

bool TraceFile::End(JsonScan* scan) {
  if (scan->Peek() != '\0') return scan->Fail("the end of the file");
  if (scan->at() != window_.data() + end_) return scan->Fail("the end of the file");
  // If more bytes follow, checks them too.
  begin_ = end_;
  if (Fill()) {
    *scan = JsonScan(window_.data() + begin_, window_.data() + end_);
    return true;
  }
  *scan = JsonScan(window_.data() + begin_, window_.data() + end_);
  if (const auto& problem = stream_->problem()) report_->Add(problem->offset, problem->text);
  place_ = Place::kDone;
  return true;
}

void TraceFile::TakeProcess(std::string_view json) {
  JsonScan scan(json.data(), json.data() + json.size());
  if (!scan.Take('{', "'{'")) return;
  bool first = true;
  std::string_view key, raw;
  while (scan.NextMember(&first, &key)) {
    const bool rank = key == "rank", world = key == "world_size";
    const char next = scan.Peek();
    if ((!rank && !world) || next == '{' || next == '[') {
      scan.Skip();
      continue;
    }
    int64_t value = 0;
    if (!scan.Scalar(&raw) || !WholeOf(raw, &value) || value < 0 || value > 1 << 17) continue;
    if (rank) keeper_.SetRank(value);
    if (world) world_size_ = value;
  }
}

void TraceFile::Close() {
  if (!saw_events_ && !report_->failed())
    report_->Add(window_at_ + begin_, "expected a list of events, \"traceEvents\", found none");
  if (keeper_.without_time() > 0) {
    report_->Add(0, "expected a start and a duration in each complete event, found " +
                        std::to_string(keeper_.without_time()) + " without");
  }
  if (keeper_.negative() > 0) {
    // It is an error if more than one event in this many ends before it begins.
    constexpr uint64_t kFew = 10;
    report_->Add(0,
                 "expected durations of 0 or more, found " + std::to_string(keeper_.negative()) +
                     " below 0 of " + std::to_string(keeper_.timed() + keeper_.negative()) +
                     ": these events are ignored",
                 keeper_.negative() * kFew > keeper_.timed());
  }
  if (keeper_.pairs() > 0) {
    report_->Add(0,
                 "expected complete events (\"ph\": \"X\"), found " +
                     std::to_string(keeper_.pairs()) +
                     " that only begin or end: these were ignored",
                 false);
  }
  if (keeper_.names_left_out()) report_->Note("there are more names of events than the limit");
}

bool TraceFile::Recognise(std::string_view head) {
  std::string padded(head);
  padded.append(JsonScan::kPadding, '\0');
  JsonScan scan(padded.data(), padded.data() + head.size());
  bool first = true;
  std::string_view key;
  if (scan.Peek() == '[') {
    scan.Take('[', "");
    TraceEvent event;
    return scan.NextElement(&first) && scan.Peek() == '{' && ReadEvent(&scan, &event) &&
           event.phase != 0 && (event.has_start || event.phase == 'M');
  }
  if (!scan.Take('{', "")) return false;
  bool of_kineto = false;
  while (scan.NextMember(&first, &key)) {
    if (key == "traceEvents") return scan.Peek() == '[' || scan.Peek() == '\0';
    of_kineto |= key == "schemaVersion" || key == "deviceProperties" || key == "displayTimeUnit" ||
                 key == "distributedInfo";
    if (!scan.Skip()) break;
  }
  // The text ends within a long beginning.
  return scan.cut() && of_kineto;
}

}  // namespace plumbline::audit
