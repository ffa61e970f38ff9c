// Writes the results of gpu_gemm: DIR/gemm.json, DIR/dumps/*.safetensors and DIR/contracts/*.toml.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "bench/gpu/gemm/gemm_probe.h"

namespace plumbline::bench {

// Returns "bf16-f32-32F-128x128x64  verified 250/250  0.12 s  ...".
std::string LineOf(const Probed& probed);

// The file is complete after every Add: if the run dies, only its current product is lost. Not
// thread-safe.
class Report {
 public:
  // Limit of dumps and contracts together. gemm.json has the rest of 8 MiB.
  static constexpr size_t kMostFileBytes = size_t{7} << 20;

  // Creates `folder` if it does not exist.
  Report(std::string folder, std::string library, std::string device);
  // Returns Internal if a file could not be written.
  absl::Status Add(const Probed& probed);

  int count(Outcome outcome) const { return counts_[static_cast<int>(outcome)]; }

 private:
  // If there is no such file or it does not fit, sets *name to "".
  absl::Status WriteNextTo(const std::string& name, const std::string& bytes,
                           nlohmann::ordered_json* entry, const char* key);
  absl::Status WriteJson();

  const std::string folder_;
  nlohmann::ordered_json json_;
  nlohmann::ordered_json products_ = nlohmann::ordered_json::array();
  size_t file_bytes_ = 0;
  int counts_[3] = {};
};

}  // namespace plumbline::bench
