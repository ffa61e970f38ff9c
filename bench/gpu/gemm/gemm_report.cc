#include "bench/gpu/gemm/gemm_report.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/sums/contract.h"

namespace plumbline::bench {
namespace {

using nlohmann::ordered_json;

ordered_json ShapeJson(const Shape& shape) { return {shape.rows, shape.columns, shape.inner}; }

ordered_json AlgorithmJson(const Algorithm& a) {
  return {{"id", a.id},
          {"tile", a.tile},
          {"stages", a.stages},
          {"split_k", a.split_k},
          {"reduction", a.reduction},
          {"swizzling", a.swizzling},
          {"custom", a.custom},
          {"inner_shape", a.inner_shape},
          {"cluster_shape", a.cluster_shape},
          {"workspace_bytes", a.workspace_bytes},
          {"waves", a.waves}};
}

void AddFingerprint(const sums::Fingerprint& f, ordered_json* entry) {
  ordered_json tests = ordered_json::array();
  for (const sums::TestResult& t : f.tests) {
    tests.push_back({{"id", t.id}, {"name", t.name}, {"result", t.result}});
  }
  (*entry)["verdict"] = sums::VerdictName(f.verdict);
  (*entry)["evidence"] = f.evidence;
  (*entry)["order"] = f.order;
  (*entry)["tree"] = f.tree_hash;
  (*entry)["arithmetic"] = f.arithmetic;
  (*entry)["matches"] = f.matches;
  (*entry)["samples"] = f.samples;
  (*entry)["also"] = f.also;
  (*entry)["tests"] = tests;
  (*entry)["tree_calls"] = f.tree_calls;
}

ordered_json ProductJson(const Probed& probed) {
  const Product& p = probed.product;
  ordered_json entry = {{"name", NameOf(p)},
                        {"outcome", OutcomeName(probed.outcome)},
                        {"why", probed.why},
                        {"input", DTypeName(p.input)},
                        {"output", DTypeName(p.output)},
                        {"compute", ComputeName(p.compute)},
                        {"fast_accumulation", p.fast_accumulation},
                        {"shape", ShapeJson(p.shape)},
                        {"algorithm_shape", ShapeJson(p.algorithm)},
                        {"asked_split_k", p.split_k},
                        {"asked_reduction", ReductionName(p.reduction)},
                        {"algorithm", AlgorithmJson(probed.algorithm)}};
  if (probed.outcome == Outcome::kRequested) AddFingerprint(probed.fingerprint, &entry);
  entry["batch"] = probed.batch;
  entry["calls"] = probed.calls;
  entry["seconds"] = probed.seconds;
  entry["estimated_seconds"] = EstimatedSeconds(p);
  return entry;
}

absl::Status WriteWhole(const std::string& path, const std::string& bytes) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  if (error || !file) return absl::InternalError(path + ": cannot be written");
  return absl::OkStatus();
}

std::string Cut(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

}  // namespace

std::string LineOf(const Probed& probed) {
  const std::string name = NameOf(probed.product);
  if (probed.outcome != Outcome::kRequested) {
    return absl::StrFormat("%-44s %s: %s", name, OutcomeName(probed.outcome), probed.why);
  }
  const sums::Fingerprint& f = probed.fingerprint;
  const std::string batch =
      probed.batch.empty() ? "" : absl::StrCat("; batch: ", Cut(probed.batch, 60));
  return absl::StrFormat("%-44s %s %d/%d, %d calls, %.2f s; %s; %s%s", name,
                         sums::VerdictName(f.verdict), f.matches, f.samples, probed.calls,
                         probed.seconds, Cut(f.order, 120), Cut(f.arithmetic, 120), batch);
}

Report::Report(std::string folder, std::string library, std::string device)
    : folder_(std::move(folder)) {
  json_ = {{"schema", "plumbline.gpu_gemm/1"},
           {"library", std::move(library)},
           {"device", std::move(device)}};
}

absl::Status Report::Add(const Probed& probed) {
  ++counts_[static_cast<int>(probed.outcome)];
  ordered_json entry = ProductJson(probed);
  const std::string name = NameOf(probed.product);
  if (absl::Status s =
          WriteNextTo(absl::StrCat("dumps/", name, ".safetensors"), probed.dump, &entry, "dump");
      !s.ok()) {
    return s;
  }
  const bool verified = probed.outcome == Outcome::kRequested &&
                        probed.fingerprint.verdict == sums::Verdict::kVerified;
  const std::string contract =
      verified ? sums::ContractToml(sums::ContractOf(probed.fingerprint)) : "";
  if (absl::Status s =
          WriteNextTo(absl::StrCat("contracts/", name, ".toml"), contract, &entry, "contract");
      !s.ok()) {
    return s;
  }
  products_.push_back(std::move(entry));
  return WriteJson();
}

absl::Status Report::WriteNextTo(const std::string& name, const std::string& bytes,
                                 ordered_json* entry, const char* key) {
  if (bytes.empty()) return absl::OkStatus();
  if (file_bytes_ + bytes.size() > kMostFileBytes) {
    (*entry)[key] = absl::StrCat("left out: ", bytes.size(), " bytes more than there is room for");
    return absl::OkStatus();
  }
  file_bytes_ += bytes.size();
  (*entry)[key] = name;
  return WriteWhole(absl::StrCat(folder_, "/", name), bytes);
}

absl::Status Report::WriteJson() {
  json_["asked"] = count(Outcome::kRequested);
  json_["refused"] = count(Outcome::kRefused);
  json_["not_reached"] = count(Outcome::kNotReached);
  ordered_json whole = json_;
  whole["products"] = products_;
  return WriteWhole(absl::StrCat(folder_, "/gemm.json"),
                    whole.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace plumbline::bench
