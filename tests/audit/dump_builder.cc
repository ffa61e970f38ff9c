#include "tests/audit/dump_builder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

namespace plumbline::audit::testing {
namespace {

constexpr int kSequence = 32;

std::vector<float> RandomLogits(int tokens, int experts, uint32_t seed) {
  std::mt19937 random(seed);
  // An own uniform distribution: those of the standard library differ between implementations.
  std::vector<float> logits(static_cast<size_t>(tokens) * static_cast<size_t>(experts));
  for (float& value : logits) value = static_cast<float>(random() >> 8) / (1 << 22) - 2.0f;
  return logits;
}

void AddPlaces(int tokens, Dump* dump) {
  std::vector<int32_t> sequence, position;
  for (int t = 0; t < tokens; ++t) {
    sequence.push_back(t / kSequence);
    position.push_back(t % kSequence);
  }
  dump->tensors.push_back({"sequence_id", "I32", {tokens}, Bytes(sequence)});
  dump->tensors.push_back({"position", "I32", {tokens}, Bytes(position)});
}

// Experts of one row, best first.
std::vector<int> Ranked(const float* row, int experts) {
  std::vector<int> order(static_cast<size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [row](int a, int b) { return row[a] > row[b]; });
  return order;
}

}  // namespace

DumpTensor& Dump::Tensor(std::string_view name) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const DumpTensor& t) { return t.name == name; });
}

void Dump::Remove(std::string_view name) {
  tensors.erase(std::find_if(tensors.begin(), tensors.end(),
                             [&](const DumpTensor& t) { return t.name == name; }));
}

std::string Dump::HeaderJson() const {
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata;
  size_t offset = 0;
  for (const DumpTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  return header.dump();
}

std::string Dump::File() const {
  std::string data;
  for (const DumpTensor& tensor : tensors) data += tensor.data;
  return RawFile(HeaderJson(), data);
}

std::string RawFile(const std::string& header, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i)
    out += static_cast<char>((static_cast<uint64_t>(header.size()) >> (8 * i)) & 0xFF);
  return out + header + data;
}

Dump LeakyDump(int tokens, int experts, uint32_t seed) {
  const std::vector<float> logits = RandomLogits(tokens, experts, seed);
  constexpr int kPools = 2;
  const int share = tokens / kPools / experts, capacity = share - share / 4;
  std::vector<int64_t> choice;
  std::vector<int32_t> pool;
  std::vector<std::vector<std::pair<float, int>>> queue(static_cast<size_t>(kPools * experts));
  for (int t = 0; t < tokens; ++t) {
    const float* row = &logits[static_cast<size_t>(t * experts)];
    const int best = Ranked(row, experts)[0];
    choice.push_back(best);
    pool.push_back(t * kPools / tokens);
    queue[static_cast<size_t>(pool.back() * experts + best)].push_back({-row[best], t});
  }
  std::vector<uint8_t> keep(static_cast<size_t>(tokens), 0);
  for (auto& waiting : queue) {
    std::sort(waiting.begin(), waiting.end());
    for (size_t i = 0; i < waiting.size() && i < static_cast<size_t>(capacity); ++i) {
      keep[static_cast<size_t>(waiting[i].second)] = 1;
    }
  }
  Dump dump;
  dump.metadata = {{"kind", "routing"},
                   {"top_k", "1"},
                   {"run", "demo"},
                   {"step", "7"},
                   {"layer", "layers.3"},
                   {"rank", "0"},
                   {"capacity", std::to_string(capacity)},
                   {"policy", "score-capacity"}};
  dump.tensors = {{"router_logits", "F32", {tokens, experts}, Bytes(logits)},
                  {"topk_indices", "I64", {tokens, 1}, Bytes(choice)},
                  {"keep_mask", "BOOL", {tokens, 1}, Bytes(keep)},
                  {"pool_id", "I32", {tokens}, Bytes(pool)}};
  AddPlaces(tokens, &dump);
  return dump;
}

Dump DroplessDump(int tokens, int experts, uint32_t seed) {
  const std::vector<float> logits = RandomLogits(tokens, experts, seed);
  std::vector<int32_t> indices;
  for (int t = 0; t < tokens; ++t) {
    const std::vector<int> order = Ranked(&logits[static_cast<size_t>(t * experts)], experts);
    indices.push_back(order[0]);
    indices.push_back(order[1]);
  }
  Dump dump;
  dump.metadata = {{"kind", "routing"},  {"top_k", "2"},
                   {"run", "demo"},      {"step", "0"},
                   {"rank", "0"},        {"layer", "layers.0"},
                   {"capacity", "none"}, {"score_function", "softmax"}};
  dump.tensors = {{"router_logits", "F32", {tokens, experts}, Bytes(logits)},
                  {"topk_indices", "I32", {tokens, 2}, Bytes(indices)}};
  AddPlaces(tokens, &dump);
  return dump;
}

}  // namespace plumbline::audit::testing
