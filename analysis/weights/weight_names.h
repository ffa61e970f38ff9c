// Finds a weight's purpose from the names that trainers use.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace plumbline::analysis {

// Returns true if one of the name's parts, between dots, is one of these words, in any case.
bool HasPart(std::string_view name, std::initializer_list<std::string_view> words);

bool IsWordEmbedding(std::string_view name);  // "transformer.wte.weight"
bool IsWordHead(std::string_view name);       // "lm_head.weight"
bool IsPositionTable(std::string_view name);  // "wpe.weight"
bool IsKeyOrValue(std::string_view name);     // a projection to keys or values

// Returns true if a word of the name is used for tensors with one axis: a bias, a gain, a norm's
// weight.
bool IsOneAxisByName(std::string_view layer);

// Returns the name without the expert's number: "layers.3.mlp.experts.12.w1" is of expert 12, and
// "experts.*" stands for its siblings. Words before the number: expert, experts, head, heads. If
// there is none, returns an empty string.
std::string SiblingsOf(std::string_view name);

}  // namespace plumbline::analysis
