// What a weight is for, by its name as trainers give it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace plumbline::rules {

// One of the name's parts, between dots, is one of these words, in any case.
bool HasPart(std::string_view name, std::initializer_list<std::string_view> words);

bool IsWordEmbedding(std::string_view name);  // "transformer.wte.weight"
bool IsWordHead(std::string_view name);       // "lm_head.weight"
bool IsPositionTable(std::string_view name);  // "wpe.weight"
bool IsKeyOrValue(std::string_view name);     // a projection to keys or values

// A word of it is that of a tensor with one axis: a bias, a gain, a norm's weight.
bool IsOneAxisByName(std::string_view layer);

// "layers.3.mlp.experts.12.w1" is of expert 12, "experts.*" of its siblings: the same name without
// that number. Words before it: expert, experts, head, heads. Empty: of none.
std::string SiblingsOf(std::string_view name);

}  // namespace plumbline::rules
