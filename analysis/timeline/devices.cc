// One process with several GPUs: idle time on one is not idle time on another.
#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>
#include <utility>

#include "analysis/timeline/columns.h"

namespace plumbline::timeline {
namespace {

// Divisors of the busiest: a half, a hundredth.
constexpr int64_t kMainShare = 2, kLeastShare = 100;

// Orders "2" before "10", and numbers before other names.
bool DeviceBefore(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& name) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
    const bool whole = error == std::errc() && end == name.data() + name.size();
    return whole ? value : INT64_MAX;
  };
  return std::make_pair(number(a), std::string_view(a)) <
         std::make_pair(number(b), std::string_view(b));
}

// Returns the parts of `all` that belong to this device or to none.
Columns Part(const Columns& all, uint8_t device) {
  Columns part;
  part.names = all.names;
  part.spans = all.spans;
  part.steps = all.steps;
  part.host_events = all.host_events;
  part.stage = all.stage;
  part.serves = all.serves;
  part.collectives = all.collectives;
  std::unordered_map<uint32_t, bool> own;  // correlations that occur in some work
  for (const GpuWork& work : all.gpu) {
    if (work.correlation != kNoCorrelation) own[work.correlation] |= work.device == device;
    if (work.device == device) part.gpu.push_back(work);
  }
  for (const Launch& launch : all.launches) {
    const auto found = own.find(launch.correlation);
    if (found == own.end() || found->second) part.launches.push_back(launch);
  }
  return part;
}

}  // namespace

Devices ByDevice(Columns columns) {
  std::map<uint8_t, int64_t> busy;  // sums: overlapping streams count separately
  for (const GpuWork& work : columns.gpu) busy[work.device] += work.end - work.start;
  Devices out;
  if (busy.size() < 2) {
    out.kept.push_back({"", std::move(columns)});
    return out;
  }
  const auto name = [&](uint8_t device) {
    return device < columns.devices.size() ? columns.devices[device] : std::to_string(device);
  };
  std::vector<uint8_t> order;
  int64_t most = 0;
  for (const auto& [device, time] : busy) {
    order.push_back(device);
    most = std::max(most, time);
  }
  std::sort(order.begin(), order.end(),
            [&](uint8_t a, uint8_t b) { return DeviceBefore(name(a), name(b)); });
  const auto main = std::find_if(order.begin(), order.end(),
                                 [&](uint8_t device) { return busy[device] >= most / kMainShare; });
  std::rotate(order.begin(), main, main + 1);
  for (const uint8_t device : order) {
    if (busy[device] < most / kLeastShare) {
      out.left_out.push_back(name(device));
    } else {
      out.kept.push_back({out.kept.empty() ? "" : name(device), Part(columns, device)});
    }
  }
  return out;
}

}  // namespace plumbline::timeline
