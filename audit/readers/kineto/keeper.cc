#include "audit/readers/kineto/keeper.h"

#include <algorithm>
#include <utility>

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostNames = 1u << 16, kMostEventNameBytes = 16u << 20, kMostName = 4096;
constexpr size_t kMostReported = 256;  // limit for a name in a report, in bytes
constexpr size_t kMostTracks = 1u << 16;
constexpr size_t kMostDevices = 255;
constexpr size_t kMostCollectives = 1u << 15;
// Converts the type, because Debian's Abseil has its own string_view.
absl::string_view Key(std::string_view text) { return {text.data(), text.size()}; }
constexpr uint32_t kOtherName = 0, kUnnamed = UINT32_MAX;

// Returns a name for display: UTF-8 without escapes, truncated.
std::string Reported(std::string_view raw) {
  const std::string quoted = "\"" + std::string(raw) + "\"";
  std::string text;
  JsonCursor cursor(quoted);
  if (!cursor.ReadString(&text)) {
    text.clear();
    for (const char c : raw.substr(0, kMostReported))
      text.push_back(static_cast<unsigned char>(c) - 0x20u < 0x5fu ? c : '?');
  }
  if (text.size() <= kMostReported) return text;
  size_t cut = kMostReported;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut);
}

// Returns the category of an event by its process. PyTorch without Kineto writes no category, but
// uses a separate process for GPU work.
TraceCategory CategoryByProcess(const TraceEvent& event) {
  if (event.category != TraceCategory::kNone || event.process != "CUDA functions")
    return event.category;
  if (event.name.starts_with("Memcpy")) return TraceCategory::kCopy;
  return event.name.starts_with("Memset") ? TraceCategory::kMemset : TraceCategory::kKernel;
}

// Removes GPU work without a time. It seems to begin at 0, which would make the window far too
// long.
void LeaveOutTimeless(std::vector<timeline::GpuWork>* gpu) {
  constexpr int64_t kOfAClock = int64_t{1} << 50;  // ns, 13 days: times of a real clock are larger
  const auto timeless = [](const timeline::GpuWork& work) { return work.start == 0; };
  if (std::any_of(gpu->begin(), gpu->end(), timeless) &&
      std::all_of(gpu->begin(), gpu->end(), [&](const timeline::GpuWork& work) {
        return timeless(work) || work.start > kOfAClock;
      }))
    std::erase_if(*gpu, timeless);
}

// Returns the numbers in "[0, 4, 8, 12]".
std::vector<int64_t> NumbersIn(std::string_view ranks) {
  std::vector<int64_t> list;
  for (size_t at = 0; at < ranks.size();) {
    if (!IsDigit(ranks[at])) {
      ++at;
      continue;
    }
    int64_t value = 0;
    for (; at < ranks.size() && IsDigit(ranks[at]); ++at)
      value = std::min<int64_t>(value * 10 + (ranks[at] - '0'), 1 << 30);
    list.push_back(value);
  }
  return list;
}

// Returns the first rank and the stride. Returns false if the ranks have no constant stride, or the
// list is incomplete ("[0, 1, ..., 63]" is truncated).
bool RowOf(std::string_view ranks, int64_t members, int64_t* first, int64_t* stride) {
  if (ranks.find('.') != ranks.npos) return false;
  const std::vector<int64_t> list = NumbersIn(ranks);
  if (list.size() < 2 || static_cast<int64_t>(list.size()) != members) return false;
  *first = list[0];
  *stride = list[1] - list[0];
  for (size_t i = 1; i < list.size(); ++i) {
    if (list[i] - list[i - 1] != *stride) return false;
  }
  return *stride > 0;
}

}  // namespace

uint32_t TraceKeeper::Tracks::Of(std::string_view a, std::string_view b) {
  key.assign(a.substr(0, 64));
  key.push_back('\0');
  key.append(b.substr(0, 64));
  if (key == last) return last_id;
  last = key;
  if (ids.size() < kMostTracks) {
    last_id = ids.try_emplace(key, static_cast<uint32_t>(ids.size())).first->second;
  } else {
    const auto found = ids.find(key);
    last_id = found == ids.end() ? static_cast<uint32_t>(kMostTracks) : found->second;
  }
  return last_id;
}

TraceKeeper::TraceKeeper() { columns_.names.emplace_back("(other)"); }

void TraceKeeper::Take(const TraceEvent& event) {
  if (event.phase == 'B' || event.phase == 'E') {
    ++pairs_;
    return;
  }
  if (event.phase != 'X' || event.category == TraceCategory::kIgnored) return;
  if (!event.has_start || !event.has_duration) {
    ++without_time_;
    return;
  }
  if (event.duration_ns < 0) {
    ++negative_;
    return;
  }
  ++timed_;
  switch (CategoryByProcess(event)) {
    case TraceCategory::kKernel:
    case TraceCategory::kCopy:
    case TraceCategory::kMemset:
      TakeGpu(event);
      return;
    default:
      TakeHost(event);
  }
}

void TraceKeeper::TakeGpu(const TraceEvent& event) {
  const GpuName name = GpuNameOf(event.name);
  timeline::GpuWork work;
  work.start = event.start_ns;
  work.end = event.start_ns + event.duration_ns;
  work.name = name.id;
  if (event.correlation > 0) work.correlation = static_cast<uint32_t>(event.correlation);
  work.stream = event.stream.empty() ? streams_.Of(event.process, event.thread)
                                     : streams_.Of(event.device, event.stream);
  work.device = DeviceOf(event.device.empty() ? event.process : event.device);
  const TraceCategory category = CategoryByProcess(event);
  if (category == TraceCategory::kKernel) {
    work.communicates = name.communicates || !event.collective.empty() || !event.group.empty();
    if (work.communicates) work.collective = CollectiveOf(event);
    // NCCL's kernels for send and receive also implement all-to-all, so a kernel's name decides
    // only if there is no name of a collective.
    const bool sends = event.collective.empty()
                           ? name.communicates && timeline::IsPointToPoint(event.name)
                           : timeline::IsPointToPoint(event.collective);
    if (pipeline_ranks_.empty() && sends) {
      pipeline_ranks_ = std::string(event.group_ranks.substr(0, 1u << 16));
      sends_to_no_known_ = pipeline_ranks_.empty();
    }
  } else {
    work.kind =
        category == TraceCategory::kCopy ? timeline::GpuKind::kCopy : timeline::GpuKind::kMemset;
  }
  columns_.gpu.push_back(work);
}

// Returns the number of a device. Devices beyond the limit share the last number.
uint8_t TraceKeeper::DeviceOf(std::string_view name) {
  auto& devices = columns_.devices;
  const auto known = std::find(devices.begin(), devices.end(), name.substr(0, 64));
  if (known != devices.end()) return static_cast<uint8_t>(known - devices.begin());
  if (devices.size() < kMostDevices) devices.emplace_back(name.substr(0, 64));
  return static_cast<uint8_t>(devices.size() - 1);
}

// Returns the number of the collective that a kernel describes. If the description is incomplete,
// returns kNoCollective.
uint16_t TraceKeeper::CollectiveOf(const TraceEvent& event) {
  const std::string_view op =
      timeline::CollectiveOf(event.collective.empty() ? event.name : event.collective);
  const uint32_t each = timeline::BytesOfType(event.dtype);
  if (op.empty() || each == 0 || event.elements_in < 0 || event.elements_out < 0 ||
      event.group_size < 2 || event.group_size > 1 << 17)
    return timeline::kNoCollective;
  timeline::CollectiveTimes one;
  one.op = op;
  one.ranks = static_cast<uint32_t>(event.group_size);
  one.bytes = timeline::WholeBytes(op, static_cast<uint64_t>(event.elements_in),
                                   static_cast<uint64_t>(event.elements_out), one.ranks, each);
  if (one.bytes == 0) return timeline::kNoCollective;
  std::string key = one.op + "/" + std::to_string(one.bytes) + "/" + std::to_string(one.ranks) +
                    "/" + std::string(event.group_ranks.substr(0, 1u << 16));
  const auto known = collectives_.find(key);
  if (known != collectives_.end()) return known->second;
  if (columns_.collectives.size() >= kMostCollectives) return timeline::kNoCollective;
  if (!RowOf(event.group_ranks, event.group_size, &one.first, &one.stride)) {
    one.first = -1;
    one.stride = 0;
  }
  columns_.collectives.push_back(std::move(one));
  const auto number = static_cast<uint16_t>(columns_.collectives.size() - 1);
  collectives_.emplace(std::move(key), number);
  return number;
}

void TraceKeeper::TakeHost(const TraceEvent& event) {
  ++columns_.host_events;
  int64_t step = 0;
  if (timeline::StepMark(event.name, &step)) {
    columns_.steps.push_back({step, event.start_ns, event.start_ns + event.duration_ns});
    return;
  }
  const HostName name = HostNameOf(event.name);
  const bool launch = name.launch && event.category == TraceCategory::kRuntime;
  if (name.classes == 0 && !launch) return;
  const uint32_t thread = threads_.Of(event.process, event.thread);
  if (launch) {
    const auto duration = static_cast<int32_t>(std::min<int64_t>(event.duration_ns, INT32_MAX));
    columns_.launches.push_back({event.start_ns, duration,
                                 event.correlation > 0 ? static_cast<uint32_t>(event.correlation)
                                                       : timeline::kNoCorrelation,
                                 thread, name.kernel_launch});
  }
  if (name.classes != 0) {
    columns_.spans.push_back(
        {event.start_ns, event.start_ns + event.duration_ns, thread, name.id, name.classes});
  }
}

bool TraceKeeper::RoomFor(std::string_view name) {
  const bool room = gpu_names_.size() + host_names_.size() < kMostNames &&
                    name_bytes_ + name.size() <= kMostEventNameBytes && name.size() <= kMostName;
  if (room) name_bytes_ += name.size();
  return room;
}

uint32_t TraceKeeper::Intern(std::string_view name) {
  columns_.names.push_back(Reported(name));
  return static_cast<uint32_t>(columns_.names.size() - 1);
}

TraceKeeper::GpuName TraceKeeper::GpuNameOf(std::string_view name) {
  if (const auto known = gpu_names_.find(Key(name)); known != gpu_names_.end())
    return known->second;
  GpuName fresh{kOtherName, timeline::IsCommunicationKernel(name)};
  trains_ = trains_ || timeline::StatesTraining(name);
  if (!RoomFor(name)) {
    names_left_out_ = true;
    return fresh;
  }
  fresh.id = Intern(name);
  gpu_names_.emplace(std::string(name), fresh);
  return fresh;
}

TraceKeeper::HostName TraceKeeper::HostNameOf(std::string_view name) {
  if (const auto known = host_names_.find(Key(name)); known != host_names_.end())
    return known->second;
  HostName fresh{kUnnamed, timeline::ClassesOfHost(name), timeline::IsLaunch(name),
                 name.find("Launch") != name.npos};
  trains_ = trains_ || timeline::StatesTraining(name);
  const bool room = RoomFor(name);
  if (fresh.classes != 0) fresh.id = room ? Intern(name) : kOtherName;
  if (room) host_names_.emplace(std::string(name), fresh);
  return fresh;
}

timeline::Columns TraceKeeper::TakeColumns() {
  LeaveOutTimeless(&columns_.gpu);
  if (rank_ >= 0) columns_.stage = IndexOfRank(pipeline_ranks_, rank_);
  // If the stage of the rank is unknown, gives it its own stage, so that it is compared with no
  // other rank.
  if (rank_ >= 0 && columns_.stage < 0 && sends_to_no_known_)
    columns_.stage = timeline::kStageOfNoOther + rank_;
  columns_.serves = columns_.steps.empty() && !trains_;
  return std::move(columns_);
}

int64_t IndexOfRank(std::string_view ranks, int64_t rank) {
  const std::vector<int64_t> list = NumbersIn(ranks);
  const auto found = std::find(list.begin(), list.end(), rank);
  return found == list.end() ? -1 : found - list.begin();
}

}  // namespace plumbline::audit
