// Tensors and updates on the fake device, and their evidence by the path of the host and by that of
// the device.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "probes/tensor_probe.h"
#include "probes/update_probe.h"
#include "tests/probes/device_case.h"
#include "tests/probes/tensor_case.h"

namespace plumbline::probes {

// Return the serialized evidence of the call measured on the host, and of a finished device job.
template <typename Call>
std::string HostEvidence(const Call& call, const MeasureOptions& options) {
  v1::Evidence evidence;
  const absl::Status s = Measure(call, options, &evidence);
  EXPECT_TRUE(s.ok()) << s;
  return evidence.SerializeAsString();
}
template <typename Job>
std::string DeviceEvidence(const Job& job) {
  v1::Evidence evidence;
  const absl::Status s = Measure(job, &evidence);
  EXPECT_TRUE(s.ok()) << s;
  return evidence.SerializeAsString();
}
inline std::string DeviceEvidence(const DeviceItem& item) {
  EXPECT_TRUE(item.measured) << item.why.text;
  if (item.tensor != nullptr) return DeviceEvidence(*item.tensor);
  if (item.update != nullptr) return DeviceEvidence(*item.update);
  ADD_FAILURE() << "neither a tensor nor an update";
  return "";
}

class TensorRing : public OnFakeDevice {
 protected:
  template <typename Call>
  DeviceOutcome ObserveAt(DeviceRing* ring, const Call& call, uint32_t number,
                          const MeasureOptions& options, void* stream = nullptr) {
    bool prepared = false;
    return ring->Observe(call, options, stream, {nullptr, 5, number, options.sampled}, &prepared,
                         &error_);
  }
  template <typename Case>
  void ExpectHostEvidence(DeviceRing* ring, uint32_t seed) {
    SCOPED_TRACE(seed);
    const Case c(seed);
    const MeasureOptions options = OptionsOf(seed, seed % 3 != 0);
    ASSERT_TRUE(CheckCall(c.device()).ok()) << CheckCall(c.device());
    ASSERT_EQ(ObserveAt(ring, c.device(), seed, options, Stream(seed % 4)), DeviceOutcome::kTaken)
        << error_.text;
    DeviceItem item;
    ASSERT_TRUE(ring->Front(&item));
    EXPECT_EQ(item.tag.call, seed);
    EXPECT_EQ(DeviceEvidence(item), HostEvidence(c.host(), options));
    ring->Pop();
  }
};

}  // namespace plumbline::probes
