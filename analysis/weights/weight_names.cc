#include "analysis/weights/weight_names.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace plumbline::analysis {
namespace {

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

}  // namespace

bool HasPart(std::string_view name, std::initializer_list<std::string_view> words) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(name), '.');
  for (const std::string& part : parts) {
    const std::string lower = absl::AsciiStrToLower(part);
    if (std::find(words.begin(), words.end(), lower) != words.end()) return true;
  }
  return false;
}

bool IsWordEmbedding(std::string_view name) {
  return name.ends_with("weight") &&
         HasPart(name,
                 {"embed", "embedding", "embeddings", "wte", "word_embeddings", "embed_tokens",
                  "tok_embeddings", "tok_emb", "token_embedding", "shared", "embed_in"});
}

bool IsWordHead(std::string_view name) {
  return name.ends_with("weight") &&
         HasPart(name, {"lm_head", "head", "output_layer", "output", "embed_out", "decoder_head",
                        "unembed", "final_linear"});
}

bool IsPositionTable(std::string_view name) {
  return HasPart(name, {"wpe", "position_embeddings", "pos_embed", "pos_embedding",
                        "position_embedding", "embed_positions", "pos_emb"});
}

bool IsKeyOrValue(std::string_view name) {
  return HasPart(name, {"k_proj", "v_proj", "key", "value", "wk", "wv", "to_k", "to_v", "key_value",
                        "kv_proj", "linear_kv"});
}

bool IsOneAxisByName(std::string_view layer) {
  constexpr std::array<std::string_view, 9> kOneAxis = {"bias",  "norm", "ln",    "gain", "scale",
                                                        "gamma", "beta", "norm1", "norm2"};
  const std::vector<std::string> words =
      absl::StrSplit(absl::AsciiStrToLower(std::string(layer)), absl::ByAnyChar("./_-: "));
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(kOneAxis.begin(), kOneAxis.end(), word) != kOneAxis.end();
  });
}

std::string SiblingsOf(std::string_view name) {
  std::vector<std::string> parts = absl::StrSplit(std::string(name), '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const std::string_view word : {"expert", "experts", "head", "heads"}) {
      if (parts[i] == word && i + 1 < parts.size() && IsNumber(parts[i + 1])) {
        parts[i + 1] = "*";
        return absl::StrJoin(parts, ".");
      }
      std::string_view number = parts[i];
      if (!number.starts_with(word)) continue;
      number.remove_prefix(word.size());
      if (number.starts_with('_')) number.remove_prefix(1);
      if (!IsNumber(number)) continue;
      parts[i] = std::string(word) + "*";
      return absl::StrJoin(parts, ".");
    }
  }
  return "";
}

}  // namespace plumbline::analysis
