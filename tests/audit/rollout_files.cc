#include "tests/audit/rollout_files.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "audit/session/inputs.h"
#include "base/load.h"

namespace plumbline::audit::testing {

nlohmann::ordered_json Rollout(int64_t step, const std::string& id, size_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> surprise(1.0);
  std::normal_distribution<double> noise(0, 0.01);
  const auto rounded = [](double x) { return std::round(x * 1e6) / 1e6; };
  nlohmann::ordered_json record = {{"step", step}, {"sequence_id", id}};
  for (const char* list : {"tokens", "loss_mask", "rollout_logprobs", "train_logprobs"})
    record[list] = nlohmann::json::array();
  for (size_t i = 0; i < tokens; ++i) {
    const double mu = rounded(-surprise(random));
    record["tokens"].push_back(random() % 50000);
    record["loss_mask"].push_back(i < 2 ? 0 : 1);
    record["rollout_logprobs"].push_back(mu);
    record["train_logprobs"].push_back(std::min(0.0, rounded(mu + noise(random))));
  }
  return record;
}

std::string Lines(const std::vector<nlohmann::ordered_json>& records) {
  std::string out;
  for (const auto& record : records) out += record.dump() + "\n";
  return out;
}

std::string Gzip(const std::string& bytes) {
  z_stream z = {};
  deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, bytes.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string Zstd(const std::string& bytes) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), bytes.data(), bytes.size()));
  ZSTD_freeCCtx(context);
  return out;
}

std::vector<v1::LogprobsSequence> RolloutRead::sequences() const {
  std::vector<v1::LogprobsSequence> all;
  for (const v1::Batch& batch : batches) {
    for (const v1::Evidence& item : batch.evidence())
      all.insert(all.end(), item.logprobs().sequences().begin(), item.logprobs().sequences().end());
  }
  return all;
}

std::vector<int64_t> RolloutRead::steps() const {
  std::vector<int64_t> all;
  for (const v1::Batch& batch : batches) {
    for (const v1::Evidence& item : batch.evidence())
      all.insert(all.end(), static_cast<size_t>(item.logprobs().sequences_size()), item.step());
  }
  return all;
}

std::string RolloutRead::problems() const {
  std::string out;
  for (const InputReport& input : inputs) {
    for (const Problem& problem : input.problems)
      out += (problem.error ? "" : "(no error) ") + input.Line(problem) + "\n";
  }
  return out;
}

RolloutRead ReadRollouts(const std::vector<std::string>& paths, const Reader* mapped) {
  RolloutRead read;
  Inputs inputs = FindInputs(paths, nullptr, mapped);
  for (const Inputs::Set& set : inputs.sets) {
    for (const auto& source : set.reader->Open(set.files)) {
      v1::Batch batch;
      while (source->Next(&batch)) read.batches.push_back(batch);
    }
  }
  read.inputs = std::move(inputs.reports);
  return read;
}

std::vector<double> Elements(const v1::Tensor& tensor) {
  const auto dtype = static_cast<DType>(tensor.dtype());
  int64_t count = 1;
  for (const int64_t extent : tensor.shape()) count *= extent;
  std::vector<double> out;
  for (int64_t i = 0; i < count && !tensor.shape().empty(); ++i) {
    out.push_back(IsFloating(dtype)
                      ? LoadDouble(tensor.data().data(), dtype, i)
                      : static_cast<double>(LoadInt64(tensor.data().data(), dtype, i)));
  }
  return out;
}

}  // namespace plumbline::audit::testing
