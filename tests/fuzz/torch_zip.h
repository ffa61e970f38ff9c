// Builds a small checkpoint like torch.save: a stored zip with a pickle and storages.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace plumbline::audit {

inline std::string LittleEndian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(i < 8 ? value >> (8 * i) : 0);
  return out;
}

// Returns a zip of stored members, without checksums.
inline std::string StoredZip(const std::vector<std::pair<std::string, std::string>>& members) {
  const auto sizes = [](const std::string& data, const std::string& name) {
    return LittleEndian(0, 4) + LittleEndian(data.size(), 4) + LittleEndian(data.size(), 4) +
           LittleEndian(name.size(), 2);
  };
  std::string file, directory;
  for (const auto& [name, data] : members) {
    directory += "PK\x01\x02" + LittleEndian(20, 2) + LittleEndian(20, 2) + LittleEndian(0, 8) +
                 sizes(data, name) + LittleEndian(0, 12) + LittleEndian(file.size(), 4) + name;
    file += "PK\x03\x04" + LittleEndian(20, 2) + LittleEndian(0, 8) + sizes(data, name) +
            LittleEndian(0, 2) + name + data;
  }
  return file + directory + "PK\x05\x06" + LittleEndian(0, 4) + LittleEndian(members.size(), 2) +
         LittleEndian(members.size(), 2) + LittleEndian(directory.size(), 4) +
         LittleEndian(file.size(), 4) + LittleEndian(0, 2);
}

inline std::string PickledText(const std::string& text) {
  return "X" + LittleEndian(text.size(), 4) + text;
}

// Returns a tensor of `rows` by 4 floats, whose storage has this key.
inline std::string PickledTensor(const std::string& key, int rows) {
  const auto number = [](int n) { return "K" + LittleEndian(static_cast<uint64_t>(n), 1); };
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + PickledText("storage") +
         "ctorch\nFloatStorage\n" + PickledText(key) + PickledText("cpu") + number(4 * rows) +
         "tQK" + LittleEndian(0, 1) + number(rows) + number(4) + "\x86" + number(4) + number(1) +
         "\x86\x89" + "ccollections\nOrderedDict\n)RtR";
}

inline std::string PickledDict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [key, value] : items) out += key + value;
  return out + "u";
}

// Returns an object that holds a method of itself, like OneCycleLR.
inline std::string PickledCircle() {
  return std::string("ctorch.optim.lr_scheduler\nOneCycleLR\n)\x81q\x05") +
         PickledDict({{PickledText("last_epoch"), "K\x07"},
                      {PickledText("anneal_func"),
                       std::string("cbuiltins\ngetattr\nh\x05") + PickledText("f") + "\x86R"}}) +
         "b";
}

// Returns data.pkl of a model, its optimizer, a scheduler and a step.
inline std::string CheckpointPickle() {
  const auto text = PickledText;
  const std::string state = PickledDict(
      {{"K" + LittleEndian(0, 1),
        PickledDict({{text("step"), "K\x05"}, {text("exp_avg"), PickledTensor("2", 2)}})}});
  const std::string group = PickledDict(
      {{text("lr"), "G?\x84z\xe1G\xae\x14{"}, {text("params"), "](K" + LittleEndian(0, 1) + "e"}});
  return "\x80\x02" +
         PickledDict(
             {{text("model"), PickledDict({{text("a.weight"), PickledTensor("0", 2)},
                                           {text("b.weight"), PickledTensor("1", 3)}})},
              {text("optimizer"),
               PickledDict({{text("state"), state}, {text("param_groups"), "](" + group + "e"}})},
              {text("lr_scheduler"),
               PickledDict({{text("last_epoch"), "K\x07"}, {text("of"), PickledCircle()}})},
              {text("step"), "K\x07"}}) +
         ".";
}

// Returns the same with other values that trainers save: numpy's array and scalar, a set, a complex
// number, a large integer, a storage, a counter, arguments, texts.
inline std::string ValuesPickle() {
  const auto text = PickledText;
  const std::string dtype = "cnumpy\ndtype\n(" + text("f8") + "\x89\x88tR(K\x03" + text("<") +
                            "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff" + std::string("K\0", 2) + "tb";
  const auto latin = [&](size_t bytes) {
    return "c_codecs\nencode\n" + text(std::string(bytes, '7')) + text("latin1") + "\x86R";
  };
  const std::string array = "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" +
                            std::string("K\0\x85", 3) + latin(1) + "tR(K\x01K\x02\x85" + dtype +
                            "\x89" + latin(16) + "tb";
  const std::string scalar = "cnumpy.core.multiarray\nscalar\n" + dtype + latin(8) + "\x86R";
  const std::string storage =
      "(" + text("storage") + "ctorch\nFloatStorage\n" + text("2") + text("cpu") + "K\x08tQ";
  const std::string real = "G?\x84z\xe1G\xae\x14{";
  return "\x80\x02" +
         PickledDict({{text("model"), PickledDict({{text("a.weight"), PickledTensor("0", 2)}})},
                      {text("rng_state"), PickledTensor("1", 3)},
                      {text("array"), array},
                      {text("scalar"), scalar},
                      {text("set"), "cbuiltins\nset\n](K\x01K\x02" + text("x") + "e\x85R"},
                      {text("complex"), "cbuiltins\ncomplex\n" + real + real + "\x86R"},
                      {text("large"), std::string("\x8a\x09\0\0\0\0\0\0\0\0\x40", 11)},
                      {text("storage"), storage},
                      {text("counter"),
                       "ccollections\nCounter\n" + PickledDict({{text("a"), "K\x01"}}) + "\x85R"},
                      {text("args"),
                       "cargparse\nNamespace\n)\x81" +
                           PickledDict({{text("lr"), real}, {text("of"), PickledCircle()}}) + "b"},
                      {text("list"), "](N\x88\x89K\x01" + real + "e"}}) +
         ".";
}

inline std::string TorchZip(const std::string& pickle) {
  return StoredZip({{"m/data.pkl", pickle},
                    {"m/data/0", std::string(32, '?')},
                    {"m/data/1", std::string(48, '\x3e')},
                    {"m/data/2", std::string(32, '\x3d')},
                    {"m/version", "3\n"}});
}

}  // namespace plumbline::audit
