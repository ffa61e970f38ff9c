#include "analysis/statistics/alpha_split.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>
#include <span>
#include <string>

namespace plumbline::rules {
namespace {

constexpr double kTabled = 0.5;  // what the writer takes from the table; the rest it spells

// Shares are 1 / table size. '#' is a number. A name stands in a table once.
constexpr std::array<std::string_view, 8> kRules = {
    "precision/collective-sum",    "precision/collective-premultiply",
    "precision/grad-accumulation", "precision/gemm-accumulator",
    "drift/record-invalid",        "drift/sampler-mismatch",
    "drift/logit-drift",           "drift/staleness"};

constexpr std::array<std::string_view, 16> kOps = {
    "",        "sum",    "avg",       "accumulation", "gradient",       "weight",
    "update",  "matmul", "reduction", "all_reduce",   "reduce_scatter", "activation",
    "routing", "logits", "logprobs",  "loss"};

constexpr std::array<std::string_view, 16> kLayers = {
    "",        "layers.#",  "layer.#",        "blocks.#",
    "block.#", "h.#",       "model.layers.#", "transformer.h.#",
    "grads",   "gradients", "bucket.#",       "bucket#",
    "policy",  "loss",      "model",          "embedding"};

// Words of layer names, each before those it begins with: the greedy reader takes the first.
constexpr std::array<std::string_view, 64> kWords = {
    "layernorm", "layers",    "layer",   "blocks",     "block",        "bucket",      "buffer",
    "bias",      "attention", "attn",    "activation", "accumulation", "adam",        "all",
    "model",     "module",    "moments", "moment",     "momentum",     "mlp",         "moe",
    "main",      "weight",    "wte",     "wpe",        "word",         "transformer", "self",
    "shared",    "scatter",   "sum",     "state",      "step",         "proj",        "param",
    "policy",    "position",  "experts", "expert",     "encoder",      "embeddings",  "embedding",
    "embed",     "emb",       "decoder", "dense",      "down",         "gate",        "gradients",
    "gradient",  "grads",     "grad",    "group",      "head",         "input",       "in",
    "linear",    "lm",        "norm",    "out",        "query",        "reduce",      "router",
    "up"};

// What the speller writes next; these sum to 1. Each word, lower-case letter, other separator and
// other byte has an equal share of its class.
constexpr std::string_view kSeparators = "/:-";  // beside '.' and '_'
constexpr double kStop = 4 / 64.0;
constexpr double kNumber = 8 / 64.0;
constexpr double kWord = 24 / 64.0;
constexpr double kDot = 12 / 64.0;
constexpr double kUnderscore = 4 / 64.0;
constexpr double kSeparator = 1 / 64.0;
constexpr double kLetter = 8 / 64.0;
constexpr double kByte = 3 / 64.0;
static_assert(kStop + kNumber + kWord + kDot + kUnderscore + kSeparator + kLetter + kByte == 1);

constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The number that begins at `at`, if its digits up to the next non-digit are one: no leading zeros,
// at most nine digits.
struct Number {
  double weight = 0;  // 6 / (pi^2 (l + 1)^2)
  size_t length = 0;
};
std::optional<Number> NumberAt(std::string_view text, size_t at) {
  size_t end = at;
  uint64_t value = 0;
  while (end < text.size() && IsDigit(text[end]) && end - at < 10) {
    value = 10 * value + static_cast<uint64_t>(text[end++] - '0');
  }
  const size_t length = end - at;
  if (length == 0 || length > 9 || (text[at] == '0' && length > 1)) return std::nullopt;
  const double l = static_cast<double>(value) + 1;
  return Number{6 / (std::numbers::pi * std::numbers::pi * l * l), length};
}

// One token at the head of `text`.
struct Token {
  double weight;
  size_t length;
};
Token NextToken(std::string_view text) {
  if (const auto number = NumberAt(text, 0)) return {kNumber * number->weight, number->length};
  for (const std::string_view word : kWords) {
    if (text.starts_with(word)) return {kWord / kWords.size(), word.size()};
  }
  const char c = text[0];
  if (c == '.') return {kDot, 1};
  if (c == '_') return {kUnderscore, 1};
  if (c >= 'a' && c <= 'z') return {kLetter / 26, 1};
  if (kSeparators.find(c) != std::string_view::npos) return {kSeparator / 3, 1};
  return {kByte / 256, 1};
}

double SpeltWeight(std::string_view text) {
  double weight = kStop;
  while (!text.empty()) {
    const Token token = NextToken(text);
    weight *= token.weight;
    text.remove_prefix(token.length);
  }
  return weight;
}

// The weight of the numbers where `text` has the shape, else nothing.
std::optional<double> Matches(std::string_view text, std::string_view shape) {
  const size_t hole = shape.find('#');
  if (hole == std::string_view::npos) {
    return text == shape ? std::optional<double>(1) : std::nullopt;
  }
  if (!text.starts_with(shape.substr(0, hole))) return std::nullopt;
  const auto number = NumberAt(text, hole);
  if (!number || hole + number->length != text.size()) return std::nullopt;
  return number->weight;
}

double Weight(std::string_view text, std::span<const std::string_view> table) {
  for (const std::string_view shape : table) {
    if (const auto numbers = Matches(text, shape)) {
      return kTabled * *numbers / static_cast<double>(table.size());
    }
  }
  return (1 - kTabled) * SpeltWeight(text);
}

}  // namespace

double RuleWeight(std::string_view rule) { return Weight(rule, kRules); }
double OpWeight(std::string_view op) { return Weight(op, kOps); }
double LayerWeight(std::string_view layer) { return Weight(layer, kLayers); }

double AlphaOf(std::string_view rule, const v1::Site& site, double run_alpha) {
  return run_alpha * RuleWeight(rule) * OpWeight(site.op()) * LayerWeight(site.layer());
}

}  // namespace plumbline::rules
