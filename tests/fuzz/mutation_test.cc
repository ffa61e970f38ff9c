// The deterministic part of fuzzing: the same few thousand mutations of good files in every run.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/audit/dump_builder.h"
#include "tests/audit/record_builder.h"
#include "tests/fuzz/audit_bytes.h"
#include "tests/fuzz/mutate.h"

namespace plumbline::audit {
namespace {

using testing::DroplessDump;
using testing::Dump;
using testing::LeakyDump;
using testing::RawFile;

void Audit(const std::string& bytes) {
  for (const char* format : {"", "safetensors", "run-record"}) {
    AuditBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), format);
  }
}

std::string Mutate(const std::string& bytes, std::mt19937& random) {
  using namespace std::string_view_literals;
  return MutateWith(bytes, "\0\xFF\x7F\x80\"{}[],-9\\"sv, random);
}

TEST(Mutation, SafetensorsBytes) {
  std::mt19937 random(1);
  const std::string files[] = {DroplessDump(16, 4).File(), LeakyDump(64, 4).File(),
                               LeakyDump(32, 2).File()};
  const FuzzRounds rounds(1500);
  for (int i = 0; rounds.Due(i); ++i) Audit(Mutate(files[static_cast<size_t>(i) % 3], random));
}

// Only the header changes, and the length prefix matches it: mutations reach past the framing.
TEST(Mutation, SafetensorsHeader) {
  std::mt19937 random(2);
  const FuzzRounds rounds(2000);
  for (int i = 0; rounds.Due(i); ++i) {
    const Dump dump = i % 2 == 0 ? DroplessDump(16, 4) : LeakyDump(64, 4);
    std::string data;
    for (const auto& tensor : dump.tensors) data += tensor.data;
    Audit(RawFile(Mutate(dump.HeaderJson(), random), data));
  }
}

// Well-formed dumps with values that no router writes: shapes, masks, ids, metadata.
TEST(Mutation, SafetensorsContent) {
  std::mt19937 random(3);
  static constexpr const char* kValues[] = {
      "0",          "1",   "2",       "3",           "64",       "none",  "4294967295",
      "2147483647", "",    "softmax", "sigmoid",     "sequence", "world", "microbatch",
      "after",      "max", "sum2",    "batch-major", "jitter"};
  static constexpr const char* kKeys[] = {
      "top_k", "capacity", "groups",     "top_groups",    "group_score",
      "pool",  "flatten",  "randomness", "bias_captured", "score_function",
      "mode",  "step",     "rank"};
  const FuzzRounds rounds(1200);
  for (int i = 0; rounds.Due(i); ++i) {
    Dump dump = i % 2 == 0 ? DroplessDump(16, 4) : LeakyDump(64, 4);
    for (uint32_t change = 0; change < 1 + random() % 3; ++change) {
      switch (random() % 3) {
        case 0:
          dump.metadata[kKeys[random() % std::size(kKeys)]] =
              kValues[random() % std::size(kValues)];
          break;
        case 1: {
          auto& tensor = dump.tensors[random() % dump.tensors.size()];
          for (uint32_t n = 0; n < 1 + random() % 8; ++n)
            tensor.data[random() % tensor.data.size()] = static_cast<char>(random());
          break;
        }
        default:
          if (dump.tensors.size() > 1)
            dump.tensors.erase(dump.tensors.begin() + 1 +
                               static_cast<long>(random() % (dump.tensors.size() - 1)));
      }
    }
    Audit(dump.File());
  }
}

// Returns a dump of one collective, whole or of one rank.
Dump ReductionDump(std::mt19937& random, bool whole) {
  constexpr uint32_t kRanks = 4, kSamples = 8;
  const auto bytes = [&](size_t elements) {
    std::string data;
    for (size_t i = 0; i < elements; ++i) {
      const uint32_t bits = 0x3f800000 + random() % 0x800000;  // f32 from 1 to 2
      data.append(reinterpret_cast<const char*>(&bits), sizeof bits);
    }
    return data;
  };
  Dump dump;
  dump.metadata = {{"kind", "reduction"}, {"layer", "grads"},        {"op", "sum"},
                   {"step", "3"},         {"count", "1000"},         {"sequence", "5"},
                   {"group", "dp"},       {"ring_order", "3,1,2,0"}, {"channels", "2"},
                   {"chunk", "16"},       {"wire_dtype", "bf16"}};
  const std::vector<int64_t> shape =
      whole ? std::vector<int64_t>{kRanks, kSamples} : std::vector<int64_t>{kSamples};
  std::string offsets;
  for (int64_t i = 0; i < kSamples; ++i) {
    const int64_t at = 117 * i;
    offsets.append(reinterpret_cast<const char*>(&at), sizeof at);
  }
  dump.tensors = {{"inputs", "F32", shape, bytes(whole ? kRanks * kSamples : kSamples)},
                  {"output", "F32", {kSamples}, bytes(kSamples)},
                  {"offsets", "I64", {kSamples}, offsets}};
  return dump;
}

// Reductions with numbers that no collective has, values that no sum gives, tensors of other
// dtypes.
TEST(Mutation, ReductionContent) {
  std::mt19937 random(6);
  static constexpr const char* kValues[] = {"0",
                                            "1",
                                            "2",
                                            "-1",
                                            "2147483648",
                                            "4294967295",
                                            "17592186044416",
                                            "17592186044417",
                                            "4611686018427387904",
                                            "9223372036854775807",
                                            "18446744073709551615",
                                            "nan",
                                            "inf",
                                            "1e-300",
                                            "bf16",
                                            "f16",
                                            "f64",
                                            "e4m3",
                                            "i32",
                                            "avg",
                                            "sum",
                                            "0,1,2,3",
                                            "3,3,3,3",
                                            "0,1",
                                            "",
                                            "7",
                                            "accumulation",
                                            "ring"};
  static constexpr const char* kKeys[] = {"count",    "group_size", "group_rank", "sequence",
                                          "channels", "chunk",      "ring_order", "wire_dtype",
                                          "op",       "prescale",   "postscale",  "algorithm",
                                          "root",     "rank",       "world_size", "step"};
  static constexpr const char* kDTypes[] = {"F64", "F32", "F16", "BF16", "F8_E4M3", "I64", "U8"};
  const FuzzRounds rounds(1200);
  for (int i = 0; rounds.Due(i); ++i) {
    Dump dump = ReductionDump(random, i % 4 != 0);
    for (uint32_t change = 0; change < 1 + random() % 3; ++change) {
      auto& tensor = dump.tensors[random() % dump.tensors.size()];
      switch (random() % 4) {
        case 0:
        case 1:
          dump.metadata[kKeys[random() % std::size(kKeys)]] =
              kValues[random() % std::size(kValues)];
          break;
        case 2:
          for (uint32_t n = 0; n < 1 + random() % 8; ++n)
            tensor.data[random() % tensor.data.size()] = static_cast<char>(random());
          break;
        default:
          tensor.dtype = kDTypes[random() % std::size(kDTypes)];
      }
    }
    Audit(dump.File());
  }
}

// Returns a dump of a tensor, or of an update with its moments.
Dump PrecisionDump(bool update, std::mt19937& random) {
  constexpr int64_t kElements = 1200;
  std::vector<float> values;
  for (int64_t i = 0; i < kElements; ++i)
    values.push_back(static_cast<float>(random() % 1000) * 1e-3f);
  Dump dump;
  if (!update) {
    dump.metadata = {{"kind", "tensor"}, {"layer", "w"}, {"role", "probabilities"}};
    dump.tensors = {{"values", "F32", {kElements / 8, 8}, testing::Bytes(values)}};
    return dump;
  }
  dump.metadata = {{"kind", "update"}, {"layer", "w"},   {"optimizer", "adam"},
                   {"eps", "1e-8"},    {"beta2", "0.9"}, {"decay", "0.5"}};
  for (const char* name :
       {"before", "after", "intended", "gradient", "moment_before", "moment_after"})
    dump.tensors.push_back({name, "F32", {kElements}, testing::Bytes(values)});
  return dump;
}

// Dumps of a tensor or an update that no trainer writes: bits, dtypes, shapes, words.
TEST(Mutation, PrecisionContent) {
  std::mt19937 random(6);
  static constexpr const char* kValues[] = {
      "0",   "1e-8", "-1",   "nan",           "1e400",     "",       "bf16",  "e4m3",
      "ema", "sgd",  "Adam", "probabilities", "positions", "weight", "0.999", "accumulation"};
  static constexpr const char* kKeys[] = {"optimizer", "lr",   "beta2",         "eps",     "decay",
                                          "eps_dtype", "role", "target_format", "replicas"};
  static constexpr const char* kDTypes[] = {"F64", "F32",  "F16",     "BF16",   "I64",
                                            "U8",  "BOOL", "F8_E4M3", "F8_E5M2"};
  static constexpr size_t kSizes[] = {8, 4, 2, 2, 8, 1, 1, 1, 1};
  const FuzzRounds rounds(1200);
  for (int i = 0; rounds.Due(i); ++i) {
    Dump dump = PrecisionDump(i % 2 == 0, random);
    for (uint32_t change = 0; change < 1 + random() % 4; ++change) {
      auto& tensor = dump.tensors[random() % dump.tensors.size()];
      switch (random() % 4) {
        case 0:
          dump.metadata[kKeys[random() % std::size(kKeys)]] =
              kValues[random() % std::size(kValues)];
          break;
        case 1:  // a sequence of arbitrary bytes: NaN, infinities, huge and tiny values
          for (size_t n = 1 + random() % 256, at = random(); n > 0; --n, ++at)
            tensor.data[at % tensor.data.size()] = static_cast<char>(random());
          break;
        case 2: {  // all tensors: the same bytes as another dtype
          const size_t t = random() % std::size(kDTypes);
          for (auto& each : dump.tensors) {
            each.dtype = kDTypes[t];
            each.shape = {static_cast<int64_t>(each.data.size() / kSizes[t])};
          }
          break;
        }
        default:
          tensor.shape = {1, static_cast<int64_t>(random() % 3), -1};
      }
    }
    Audit(dump.File());
  }
}

// Returns a product's sample, with or without shared vectors.
Dump MatmulDump(std::mt19937& random, bool shared) {
  const int64_t m = 6, k = 9, r = shared ? 3 : m;
  std::normal_distribution<float> normal;
  std::vector<float> a(static_cast<size_t>(r * k)), b(a.size()), d(static_cast<size_t>(m));
  for (auto* values : {&a, &b, &d})
    for (float& x : *values) x = normal(random);
  Dump dump;
  dump.metadata = {{"kind", "matmul"}, {"layer", "up"}, {"rows", "64"}, {"columns", "32"}};
  dump.tensors = {{"a", "F32", {r, k}, testing::Bytes(a)},
                  {"b", "F32", {r, k}, testing::Bytes(b)},
                  {"d", "F32", {m}, testing::Bytes(d)}};
  if (!shared) return dump;
  const std::vector<uint8_t> rows = {0, 1, 2, 0, 1, 2}, columns = {0, 1, 2, 1, 2, 0};
  dump.tensors.push_back({"a_index", "U8", {m}, testing::Bytes(rows)});
  dump.tensors.push_back({"b_index", "U8", {m}, testing::Bytes(columns)});
  return dump;
}

TEST(Mutation, MatmulDumps) {
  std::mt19937 random(17);
  const FuzzRounds rounds(600);
  for (int i = 0; rounds.Due(i); ++i) {
    Dump dump = MatmulDump(random, i % 2 == 0);
    if (i % 3 == 0) {
      Audit(Mutate(dump.File(), random));
      continue;
    }
    testing::DumpTensor& tensor = dump.tensors[random() % dump.tensors.size()];
    switch (random() % 4) {
      case 0:
        for (char& byte : tensor.data) byte = static_cast<char>(random());
        break;
      case 1:
        tensor.shape[random() % tensor.shape.size()] = static_cast<int64_t>(random() % 12);
        break;
      case 2:
        tensor.dtype = random() % 2 == 0 ? "BF16" : "I64";
        break;
      default:
        dump.Remove(std::string(tensor.name));
    }
    Audit(dump.File());
  }
}

TEST(Mutation, ReductionBytes) {
  std::mt19937 random(7);
  const FuzzRounds rounds(1500);
  for (int i = 0; rounds.Due(i); ++i) Audit(Mutate(ReductionDump(random, true).File(), random));
}

TEST(Mutation, RunRecordBytes) {
  std::mt19937 random(4);
  const std::string file = testing::RecordFile({}, LeakyDump(32, 2));
  const FuzzRounds rounds(1500);
  for (int i = 0; rounds.Due(i); ++i) Audit(Mutate(file, random));
}

// The framing is valid, the messages in it are not.
TEST(Mutation, RunRecordMessages) {
  std::mt19937 random(5);
  const std::string header = testing::HeaderPayload({});
  const std::vector<v1::Batch> batches = testing::Batches({}, LeakyDump(32, 2));
  const FuzzRounds rounds(700);
  for (int i = 0; rounds.Due(i); ++i) {
    const bool bad_header = random() % 8 == 0;
    std::vector<std::pair<int, std::string>> frames = {
        {1, bad_header ? Mutate(header, random) : header}};
    for (const v1::Batch& batch : batches) {
      const std::string bytes = batch.SerializeAsString();
      frames.push_back({2, random() % 2 == 0 ? Mutate(bytes, random) : bytes});
    }
    Audit(testing::FramesFile(frames));
  }
}

}  // namespace
}  // namespace plumbline::audit
