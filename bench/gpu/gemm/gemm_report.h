// What gpu_gemm leaves behind: DIR/gemm.json, DIR/dumps/*.safetensors and DIR/contracts/*.toml.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "bench/gpu/gemm/gemm_probe.h"

namespace plumbline::bench {

// "bf16-f32-32F-128x128x64  verified 250/250  0.12 s  ..."
std::string LineOf(const Probed& probed);

// The file is whole after every Add: a run that dies loses the product it died in. Not thread-safe.
class Report {
 public:
  // Of dumps and contracts together. gemm.json takes the rest of 8 MiB.
  static constexpr size_t kMostFileBytes = size_t{7} << 20;

  // `folder` is made when it is not there.
  Report(std::string folder, std::string library, std::string device);
  // Internal: a file could not be written.
  absl::Status Add(const Probed& probed);

  int count(Outcome outcome) const { return counts_[static_cast<int>(outcome)]; }

 private:
  // Empty *name: there is no such file, or no room left for it.
  absl::Status WriteBeside(const std::string& name, const std::string& bytes,
                           nlohmann::ordered_json* entry, const char* key);
  absl::Status WriteJson();

  const std::string folder_;
  nlohmann::ordered_json json_;
  nlohmann::ordered_json products_ = nlohmann::ordered_json::array();
  size_t file_bytes_ = 0;
  int counts_[3] = {};
};

}  // namespace plumbline::bench
