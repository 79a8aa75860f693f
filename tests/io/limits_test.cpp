// Files at both sides of each limit.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_keys.hpp"
#include "fp8lab/io/csv.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/npz.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

/// Why a file with these bytes is no tensor.
std::string refusal_of(const TemporaryFolder& folder, const std::string& name,
                       std::optional<ElementType> dtype = std::nullopt) {
  return test::message_of([&] { (void)load_operand((folder / name).string(), dtype); });
}

/// Why the bytes of a .npy file of this name are no tensor.
std::string said(const std::string& bytes, std::optional<ElementType> type = std::nullopt) {
  return test::message_of([&] { (void)parse_npy(std::as_bytes(std::span(bytes)), "x", type); });
}

/// A file of a version with this header and so many bytes of data.
std::string npy_file(int version, const std::string& header, std::size_t data) {
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    text += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return text + header + std::string(data, '\1');
}

std::string npy_header(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + "}";
}

std::string safetensors_file(const std::string& header, std::size_t data) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + std::string(data, '\1');
}

}  // namespace

TEST_CASE("safetensors: a file shorter than its length says so", "[io]") {
  const TemporaryFolder folder("short");
  std::string whole(8, '\0');
  whole[0] = 2;
  whole += "{}";
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    write_text(folder / "x.safetensors", whole.substr(0, size));
    std::string message = "accepted";
    try {
      const SafetensorsFile file(folder / "x.safetensors");
    } catch (const Error& error) {
      message = error.what();
    }
    CAPTURE(size, message);
    if (size < 8)
      CHECK_THAT(message, contains("truncated: no header length"));
    else if (size < whole.size())
      CHECK_THAT(message, contains("header"));
    else
      CHECK(message == "accepted");
  }
}

TEST_CASE("operand: bytes are codes of eight bits and of nothing wider", "[io]") {
  const TemporaryFolder folder("wide");
  const std::array<std::uint8_t, 8> bytes{0x38, 0x40, 0x44, 0xb8, 0x00, 0x7e, 0x01, 0x02};
  const TensorView tensor = view_of(ElementType::u8, {2, 4}, std::span<const std::uint8_t>(bytes));
  write_safetensors(folder / "x.safetensors", {{"x", tensor}});
  write_npy(folder / "x.npy", tensor);
  for (const ElementType type :
       {ElementType::e4m3fn, ElementType::e5m2, ElementType::f16, ElementType::bf16,
        ElementType::f32, ElementType::i16, ElementType::f64}) {
    const bool fits = element_bits(type) == 8;
    for (const char* name : {"x.safetensors", "x.npy"}) {
      const std::string message = refusal_of(folder, name, type);
      CAPTURE(to_string(type), name, message);
      CHECK((message == "accepted") == fits);
    }
  }
}

TEST_CASE("operand: the type that is given goes before the sidecar's", "[io]") {
  const TemporaryFolder folder("given");
  const std::array<std::uint8_t, 4> bytes{0x38, 0x40, 0x44, 0xb8};
  write_npy(folder / "x.npy",
            view_of(ElementType::u8, {1, 4}, std::span<const std::uint8_t>(bytes)));
  write_text(folder / "x.npy.json", R"({"dtype": "e4m3fn"})");
  write_text(folder / "x.bin", "\x38\x40\x44\xb8");
  write_text(folder / "x.bin.json", R"({"dtype": "e4m3fn", "shape": [1, 4]})");
  for (const char* name : {"x.npy", "x.bin"}) {
    INFO(name);
    CHECK(load_operand((folder / name).string()).tensor().type == ElementType::e4m3fn);
    CHECK(load_operand((folder / name).string(), ElementType::e5m2).tensor().type ==
          ElementType::e5m2);
  }
}

TEST_CASE("names of results are plain", "[io]") {
  for (const char* name : {"a", "A-1_b.csv", "0", "x.y.z", "a."})
    CHECK_NOTHROW(require_file_name("name", name));
  for (const char* name :
       {"", ".", "..", ".hidden", ".a", "a/b", "/a", "a b", "a\n", "a\\b", "ä", "a:b", "a*"}) {
    INFO(name);
    CHECK_THROWS_WITH(require_file_name("name", name), contains("letters, digits"));
  }
}

TEST_CASE("JSON has each key of an object once, and so many levels", "[io]") {
  const auto ask = [](const char* text, int depth) { require_unique_keys(text, "x", depth); };
  for (const char* text :
       {"{}", "[]", "7", R"({"a": 1, "b": 2, "A": 3})", R"({"a": {"a": {"a": 1}}, "b": {"a": 1}})",
        R"([{"a": 1}, {"a": 1}])", R"({"a": ["a", "a"], "": ""})"})
    CHECK_NOTHROW(ask(text, 3));
  for (const char* text : {R"({"a": 1, "a": 1})", R"({"a": 1, "b": 2, "a": 3})",
                           R"([{"b": 1}, {"a": 1, "a": 2}])", R"({"b": {"a": 1, "a": 1}})",
                           R"({"a": {"b": 1}, "a": {"c": 1}})", R"({"a": 1, "\u0061": 2})"}) {
    INFO(text);
    CHECK_THROWS_WITH(ask(text, 3), contains("x: the key 'a' appears twice"));
  }
  for (const char* text : {"[[[]]]", R"({"a": {"b": {}}})", R"([{"a": [1]}])", "[[], [[]]]"}) {
    INFO(text);
    CHECK_NOTHROW(ask(text, 3));
    CHECK_THROWS_WITH(ask(text, 2), contains("x: nested too deeply"));
  }
  for (const char* text : {"", "{", R"({"a": 1} 2)", "{a: 1}"})
    CHECK_THROWS_WITH(ask(text, 3), contains("x: not JSON"));
}

TEST_CASE("npy: what is wrong in a header is said with its place", "[io]") {
  struct Case {
    std::string header;
    std::string message;
  };
  const std::string good = npy_header("|u1", "(3,)");
  const std::string key(41, 'k');
  for (const Case& c :
       {Case{"", "0: expected '{'"},
        {"  [", "2: expected '{'"},
        {"{descr: 1}", "1: expected a quoted string"},
        {"{", "1: expected a quoted string"},
        {"{'descr", "2: a string that does not end"},
        {"{'descr' 7", "9: expected ':'"},
        {"{'descr': [('a', '<f4')]}", "10: structured arrays are not supported"},
        {"{'descr': '<f4'", "15: expected '}'"},
        {"{'descr': '<f4' 'shape'}", "16: expected '}'"},
        {"{'descr': '<f4', 'descr': '<f4'}", "25: the key 'descr' appears twice"},
        {"{'shape': (), 'shape': ()}", "22: the key 'shape' appears twice"},
        {"{'fortran_order': True, 'fortran_order': 7}",
         "40: the key 'fortran_order' appears twice"},
        {"{'fortran_order': 7}", "18: expected True or False"},
        {"{'fortran_order': true}", "18: expected True or False"},
        {"{'shape': 3}", "10: expected '('"},
        {"{'shape': (3", "12: expected ')'"},
        {"{'shape': (3 4)}", "13: expected ')'"},
        {"{'shape': (3,x", "13: expected a dimension from 0 to 2^63 - 1"},
        {"{'shape': (-1,)}", "11: expected a dimension from 0 to 2^63 - 1"},
        {"{'shape': (9223372036854775808,)}", "11: expected a dimension from 0 to 2^63 - 1"},
        {"{'order': 1}", "9: unknown key 'order'"},
        {"{'" + key + "': 1}", "45: unknown key '" + key.substr(0, 40) + "'"},
        {"{'descr': '<f4', }", "18: expected the keys 'descr', 'fortran_order' and 'shape'"},
        {"{'descr': '|u1', 'shape': (3,)}",
         "31: expected the keys 'descr', 'fortran_order' and 'shape'"},
        {"{'fortran_order': True, 'shape': (3,)}",
         "38: expected the keys 'descr', 'fortran_order' and 'shape'"},
        {"{'descr': '|u1', 'fortran_order': True}",
         "39: expected the keys 'descr', 'fortran_order' and 'shape'"},
        {good + " x", std::to_string(good.size() + 1) + ": bytes after the header's closing brace"},
        {good + "}", std::to_string(good.size()) + ": bytes after the header's closing brace"}}) {
    INFO(c.header);
    CHECK(said(npy_file(1, c.header, 3)) == "x: header byte " + c.message);
  }
  for (const std::string& header :
       {good, good + "\n", "\n " + good, npy_header("|u1", "(3)"), npy_header("|u1", "(1, 3,)"),
        npy_header("|u1", "( 3 , 1 )"),
        std::string(R"({"shape": (3,), "descr": "|u1", "fortran_order": True,})")}) {
    INFO(header);
    CHECK(said(npy_file(1, header, 3)) == "accepted");
  }
  for (const std::size_t count : {std::size_t{64}, std::size_t{65}}) {
    const std::string shape = fmt::format("({})", fmt::join(std::vector<int>(count, 1), ","));
    CHECK(said(npy_file(1, npy_header("|u1", shape), 1)) ==
          (count == 64 ? "accepted" : "x: header byte 180: more than 64 dimensions"));
  }
}

TEST_CASE("npy: the length of a header has two bytes, or four", "[io]") {
  for (const int version : {1, 2}) {
    const std::string whole = npy_file(version, npy_header("|u1", "(3,)"), 3);
    const std::size_t start = version == 1 ? 10 : 12;
    for (std::size_t size = 0; size < whole.size(); ++size) {
      INFO("version " << version << ", " << size << " bytes");
      const std::size_t header = whole.size() - start - 3;
      CHECK(said(whole.substr(0, size)) ==
            (size < 6       ? "x: not an .npy file (no \\x93NUMPY magic)"
             : size < 10    ? "x: truncated in the first 10 bytes"
             : size < start ? "x: truncated in the first 12 bytes"
             : size < start + header
                 ? fmt::format("x: truncated: a header of {} bytes in a file of {}", header, size)
                 : fmt::format("x: truncated; copy or save it again: expected 3 elements of 1 byte "
                               "for [3], got {} byte{}",
                               size - start - header, size == start + header + 1 ? "" : "s")));
    }
    CHECK(said(whole) == "accepted");
    CHECK(said(whole + "1") == "x: too long: expected 3 elements of 1 byte for [3], got 4 bytes");
    for (const std::size_t length : {std::size_t{255}, std::size_t{256}, std::size_t{0xfedc},
                                     std::size_t{0x10000}, std::size_t{0x1020304}}) {
      if (version == 1 && length > 0xffff) continue;
      std::string header = npy_header("|u1", "(3,)");
      header.resize(length, ' ');
      INFO("version " << version << ", a header of " << length);
      const std::string text = npy_file(version, header, 3);
      const TensorView view = parse_npy(std::as_bytes(std::span(text)), "x", std::nullopt);
      CHECK(view.bytes.size() == 3);
      CHECK(said(text.substr(0, text.size() - 4)) ==
            fmt::format("x: truncated: a header of {} bytes in a file of {}", length,
                        text.size() - 4));
    }
  }
  std::string other = npy_file(1, npy_header("|u1", "(3,)"), 3);
  for (const auto& [major, minor] : {std::pair{0, 0}, {3, 0}, {1, 1}, {2, 1}}) {
    other[6] = static_cast<char>(major);
    other[7] = static_cast<char>(minor);
    CHECK(said(other) == fmt::format("x: expected version 1.0 or 2.0, got {}.{}", major, minor));
  }
}

TEST_CASE("npy: NumPy's names of types, and what their bytes may be read as", "[io]") {
  using enum ElementType;
  struct Case {
    const char* descr;
    ElementType type;
  };
  const std::vector<ElementType> all{f64,      f32,  f16,  bf16, e4m3fn, e5m2,   e8m0fnu, e4m3fnuz,
                                     e5m2fnuz, e2m1, e2m3, e3m2, e2m1x2, e2m3x4, e3m2x4,  u8,
                                     u16,      u32,  u64,  i8,   i16,    i32,    i64,     boolean};
  for (const Case& c : {Case{"<f8", f64},
                        {"<f4", f32},
                        {"<f2", f16},
                        {"|u1", u8},
                        {"<u2", u16},
                        {"<u4", u32},
                        {"<u8", u64},
                        {"|i1", i8},
                        {"<i2", i16},
                        {"<i4", i32},
                        {"<i8", i64},
                        {"|b1", boolean}}) {
    INFO(c.descr);
    const std::string text = npy_file(1, npy_header(c.descr, "(6,)"), 6 * element_bytes(c.type));
    const TensorView view = parse_npy(std::as_bytes(std::span(text)), "x", std::nullopt);
    CHECK(to_string(view.type) == to_string(c.type));
    for (const ElementType as : all) {
      INFO("as " << to_string(as));
      const bool narrow = element_bits(as) <= 8 && as >= e4m3fn && as <= e3m2x4;
      const bool fits =
          as == c.type || (c.type == u8 && narrow) || (c.type == u16 && (as == f16 || as == bf16));
      if (!fits) {
        CHECK(said(text, as) ==
              fmt::format("x: dtype '{}': cannot be read as {}", c.descr, to_string(as)));
        continue;
      }
      const TensorView read = parse_npy(std::as_bytes(std::span(text)), "x", as);
      CHECK(to_string(read.type) == to_string(as));
      CHECK(read.size() == (element_bits(as) == 4 ? 12 : element_bits(as) == 6 ? 8 : 6));
    }
    TensorView written{c.type, {6}, view.bytes, false};
    CHECK_THAT(npy_preamble(written), contains("'descr': '" + std::string(c.descr) + "', "));
  }
  for (const char* descr : {"<V2", "|V2"}) {
    const std::string text = npy_file(1, npy_header(descr, "(3,)"), 6);
    for (const ElementType as : all)
      CHECK(said(text, as) == (as == f16 || as == bf16
                                   ? "accepted"
                                   : fmt::format("x: dtype '{}': opaque words, as NumPy saves "
                                                 "bfloat16; name the dtype (bf16)",
                                                 descr)));
  }
  const auto why = [](const std::string& descr) {
    return said(npy_file(1, npy_header(descr, "(3,)"), 6));
  };
  for (const char* descr : {"|V1", "<V1"})
    CHECK(why(descr) == fmt::format("x: dtype '{}': opaque bytes, NumPy did not keep which FP8 "
                                    "format they are; save x.view(np.uint8) and name the dtype "
                                    "(e4m3fn, e5m2), or write .safetensors",
                                    descr));
  for (const char* descr : {">f4", ">O", ">V2"})
    CHECK(
        why(descr) ==
        fmt::format("x: dtype '{}': big endian; save x.astype(x.dtype.newbyteorder('<'))", descr));
  CHECK(why("|O") == "x: dtype '|O': pickled objects are not supported");
  const std::string wide(41, 'w');
  for (const std::string& descr : {std::string("<c8"), std::string("<f3"), std::string("f4"),
                                   std::string("<u1"), std::string(""), wide})
    CHECK(why(descr) ==
          fmt::format("x: dtype '{}': not supported; expected <f2, <f4, <f8, |u1, <u2 "
                      "or an integer type",
                      descr.substr(0, 40)));
  CHECK(said(npy_file(1, npy_header("<f4", "(2, 2)"), 18)) ==
        "x: too long: expected 4 elements of 4 bytes for [2, 2], got 18 bytes");
  CHECK(said(npy_file(1, npy_header("<f4", "(2, 2)"), 15)) ==
        "x: truncated; copy or save it again: expected 4 elements of 4 bytes for [2, 2], "
        "got 15 bytes");
}

TEST_CASE("safetensors: each name of a type is its own, read and written", "[io]") {
  using enum ElementType;
  const TemporaryFolder folder("st_names_of_types");
  struct Case {
    const char* name;
    ElementType type;
  };
  for (const Case& c : {Case{"F64", f64},
                        {"F32", f32},
                        {"F16", f16},
                        {"BF16", bf16},
                        {"F8_E4M3", e4m3fn},
                        {"F8_E5M2", e5m2},
                        {"F8_E8M0", e8m0fnu},
                        {"U8", u8},
                        {"U16", u16},
                        {"U32", u32},
                        {"U64", u64},
                        {"I8", i8},
                        {"I16", i16},
                        {"I32", i32},
                        {"I64", i64},
                        {"BOOL", boolean},
                        {"F8_E4M3FNUZ", e4m3fnuz},
                        {"F8_E5M2FNUZ", e5m2fnuz},
                        {"F4", e2m1x2},
                        {"F6_E2M3", e2m3x4},
                        {"F6_E3M2", e3m2x4}}) {
    INFO(c.name);
    const std::size_t bytes = element_bits(c.type) * 8 / 8;
    const std::string entry = fmt::format(
        R"({{"x":{{"dtype":"{}","shape":[2,4],"data_offsets":[0,{}]}}}})", c.name, bytes);
    write_text(folder / "x.safetensors", safetensors_file(entry, bytes));
    const SafetensorsFile file(folder / "x.safetensors");
    CHECK(to_string(file.find("x").type) == to_string(c.type));
    write_safetensors(folder / "y.safetensors", {{"x", file.find("x")}});
    CHECK_THAT(read_text(folder / "y.safetensors"), contains(entry));
  }
  const std::vector<std::uint8_t> codes(4);
  for (const ElementType type : {e2m1, e2m3, e3m2})
    CHECK_THROWS_WITH(
        write_safetensors(folder / "z.safetensors",
                          {{"z", view_of(type, {4}, std::span<const std::uint8_t>(codes))}}),
        fmt::format("tensor 'z': expected a type that the format has a name for, got {}",
                    to_string(type)));
}

TEST_CASE("safetensors: headers have a length that eight divides", "[io]") {
  const TemporaryFolder folder("st_padding");
  const std::array<std::uint8_t, 1> code{7};
  for (std::size_t letters = 1; letters <= 16; ++letters) {
    INFO(letters << " letters");
    write_safetensors(folder / "x.safetensors",
                      {{std::string(letters, 'n'),
                        view_of(ElementType::u8, {1}, std::span<const std::uint8_t>(code))}});
    const std::string text = read_text(folder / "x.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, text.data(), sizeof length);
    CHECK(length % 8 == 0);
    CHECK(text.size() == 8 + length + 1);
    const std::size_t brace = text.rfind('}');
    CHECK(8 + length - brace <= 8);  // no more blanks than that takes
    CHECK(text.substr(brace + 1) == std::string(text.size() - brace - 2, ' ') + "\x07");
  }
}

TEST_CASE("safetensors: what is wrong with an entry is said with its name", "[io]") {
  const TemporaryFolder folder("st_entries");
  const std::string path = (folder / "x.safetensors").string();
  const auto why = [&](const std::string& header, std::size_t data = 8) {
    write_text(path, safetensors_file(header, data));
    try {
      const SafetensorsFile file(path);
    } catch (const Error& error) {
      const std::string message = error.what();
      REQUIRE(message.starts_with(path + ": "));
      return message.substr(path.size() + 2);
    }
    return std::string("accepted");
  };
  const auto entry = [&](const std::string& dtype, const std::string& shape,
                         const std::string& offsets, std::size_t data = 8) {
    return why(fmt::format(R"({{"w":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                           offsets),
               data);
  };
  const std::string f32 = R"("F32")";
  CHECK(entry(f32, "[2]", "[0,8]") == "accepted");
  CHECK(entry("7", "[2]", "[0,8]") == "'w': dtype: expected a string");
  CHECK(entry(R"("F5")", "[2]", "[0,8]") == "'w': unknown dtype 'F5'");
  CHECK(entry('"' + std::string(41, 'F') + '"', "[2]", "[0,8]") ==
        "'w': unknown dtype '" + std::string(40, 'F') + "'");
  CHECK(entry(f32, "2", "[0,8]") == "'w': shape: expected a list of integers");
  CHECK(entry(f32, "[2]", "{}") == "'w': data_offsets: expected a list of integers");
  CHECK(entry(f32, "[-2]", "[0,8]") == "'w': shape: expected integers from 0 to 2^62, got -2");
  CHECK(entry(f32, "[4611686018427387905]", "[0,8]") ==
        "'w': shape: expected integers from 0 to 2^62, got 4611686018427387905");
  CHECK(entry(f32, "[4611686018427387904]", "[0,8]") ==
        "'w': expected 4611686018427387904 elements of 4 bytes for shape [4611686018427387904], "
        "got 8 bytes");
  CHECK(entry(f32, "[2]", "[0,8,8]") == "'w': data_offsets: expected at most 2 integers, got 3");
  CHECK(entry(f32, "[2]", "[8]") == "'w': data_offsets: expected [begin, end]");
  CHECK(entry(f32, "[2]", "[8,0]") == "'w': data_offsets [8, 0] lie outside the 8 bytes of data");
  CHECK(entry(f32, "[2]", "[0,9]") == "'w': data_offsets [0, 9] lie outside the 8 bytes of data");
  CHECK(entry(f32, "[]", "[0,8]") ==
        "'w': expected 1 element of 4 bytes for shape [], got 8 bytes");
  CHECK(entry(f32, "[2]", "[0,7]", 7) ==
        "'w': expected 2 elements of 4 bytes for shape [2], got 7 bytes");
  CHECK(entry(R"("F4")", "[5,3]", "[0,8]") ==
        "'w': expected 15 elements of 4 bits for shape [5, 3], got 8 bytes");
  CHECK(entry(R"("F6_E2M3")", "[8]", "[0,8]") ==
        "'w': expected 8 elements of 6 bits for shape [8], got 8 bytes");
  for (const std::size_t count : {std::size_t{64}, std::size_t{65}})
    CHECK(entry(f32, fmt::format("[{},2]", fmt::join(std::vector<int>(count - 1, 1), ",")),
                "[0,8]") ==
          (count == 64 ? "accepted" : "'w': shape: expected at most 64 integers, got 65"));
  for (const char* other : {"7", "[]", "{}", R"({"dtype":"F32","shape":[2]})",
                            R"({"dtype":"F32","shape":[2],"offsets":[0,8]})",
                            R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1})"})
    CHECK(why(fmt::format(R"({{"w":{}}})", other)) ==
          "'w': expected exactly dtype, shape and data_offsets");
  const std::string name(81, 'n');
  CHECK(why(fmt::format(R"({{"{}":7}})", name)) ==
        "'" + name.substr(0, 80) + "': expected exactly dtype, shape and data_offsets");
  const auto two = [&](const std::string& a, const std::string& b) {
    return why("{\"" + name + R"(":{"dtype":"U8","shape":[)" + a +
               R"(},"b":{"dtype":"U8","shape":[)" + b + "}}");
  };
  CHECK(two("4],\"data_offsets\":[4,8]", "5],\"data_offsets\":[0,5]") ==
        "'" + name.substr(0, 80) + "': overlaps the tensor before it");
  CHECK(two("4],\"data_offsets\":[4,8]", "3],\"data_offsets\":[0,3]") ==
        "'" + name.substr(0, 80) + "': leaves a hole after the tensor before it");
  CHECK(two("1],\"data_offsets\":[4,5]", "4],\"data_offsets\":[0,4]") ==
        "3 bytes of data belong to no tensor");
  for (const char* metadata : {"7", "[]", R"({"a":7})", R"({"a":"b","c":{}})", "null"})
    CHECK(why(fmt::format(R"({{"__metadata__":{}}})", metadata), 0) ==
          "__metadata__: expected an object of strings");
  CHECK(why(R"({"__metadata__":{"a":"b","c":""}})", 0) == "accepted");
  CHECK(why("[]") == "header does not start with '{'");
}

TEST_CASE("npz: of the names of an archive the first twenty are said", "[io]") {
  const TemporaryFolder folder("npz_names_shown");
  const std::array<float, 1> value{1.0F};
  for (const std::size_t count : {1U, 19U, 20U, 21U, 22U, 40U}) {
    std::vector<NamedTensor> tensors;
    std::vector<std::string> shown;
    for (std::size_t i = 0; i < count; ++i) {
      tensors.push_back(
          {fmt::format("t{}", i), view_of(ElementType::f32, {1}, std::span<const float>(value))});
      if (i < 20) shown.push_back(tensors.back().name);
    }
    const std::string path = (folder / "x.npz").string();
    write_npz(path, tensors);
    CHECK_THROWS_WITH(NpzFile(path).read("x"),
                      fmt::format("{}: tensor: expected one of {}{}, got 'x'", path,
                                  fmt::join(shown, ", "), count > 20 ? ", ..." : ""));
  }
}

TEST_CASE("a chain of forty links is followed", "[io]") {
  const TemporaryFolder folder("links");
  namespace fs = std::filesystem;
  write_text(folder / "0", "end");
  for (int i = 1; i <= 41; ++i)
    fs::create_symlink(fmt::format("{}", i - 1), folder / fmt::format("{}", i));
  for (const int links : {0, 1, 39, 40})
    CHECK(follow_links(folder / fmt::format("{}", links)) == folder / "0");
  CHECK_THROWS_WITH(follow_links(folder / "41"),
                    (folder / "41").string() + ": cannot open: a loop of symbolic links");
  fs::create_directory(folder / "sub");
  fs::create_symlink("../0", folder / "sub/relative");
  CHECK(read_text(follow_links(folder / "sub/relative")) == "end");
  fs::create_symlink((folder / "0").string(), folder / "sub/absolute");
  CHECK(follow_links(folder / "sub/absolute") == folder / "0");
  CHECK(follow_links(folder / "none") == folder / "none");
}

TEST_CASE("csv: cells and what is wrong with them, by rows", "[io]") {
  using Rows = std::vector<std::vector<std::string>>;
  CHECK(parse_csv("").empty());
  CHECK(parse_csv("a,b\n1,2") == Rows{{"a", "b"}, {"1", "2"}});
  CHECK(parse_csv("a,b\n1,2\n") == Rows{{"a", "b"}, {"1", "2"}});
  CHECK(parse_csv("\"a,\n\",\"\"\"\"\n,\n") == Rows{{"a,\n", "\""}, {"", ""}});
  CHECK(parse_csv("\"\"") == Rows{{""}});
  CHECK_THROWS_WITH(parse_csv("a\nb\n\"c"), "row 3: open quote");
  CHECK_THROWS_WITH(parse_csv("\"a\"\""), "row 1: open quote");
  CHECK_THROWS_WITH(parse_csv("a\n\"b\"c\n"), "row 2: text after a closing quote");
  CHECK_THROWS_WITH(parse_csv("a,b\n1,2\n1\n"), "row 3: expected 2 cells, got 1");
  CHECK_THROWS_WITH(parse_csv("a,b\n1,2,3\n"), "row 2: expected 2 cells, got 3");
}

TEST_CASE("JSON's keys are cut in messages after 80 letters", "[io]") {
  for (const std::size_t letters : {79U, 80U, 81U}) {
    const std::string key(letters, 'k');
    CHECK_THROWS_WITH(require_unique_keys(fmt::format(R"({{"{}": 1, "{}": 2}})", key, key), "x", 1),
                      fmt::format("x: the key '{}' appears twice", key.substr(0, 80)));
  }
}

TEST_CASE("operand: codes that NumPy has no type for are named beside their file", "[io]") {
  const TemporaryFolder folder("sidecars");
  using enum ElementType;
  const std::vector<std::uint8_t> bytes(48, 1);
  for (const std::string file : {"x.npy", "x.npz"})
    for (const ElementType type :
         {f64,  f32, f16, bf16, e4m3fn, e5m2, e8m0fnu, e4m3fnuz, e5m2fnuz, e2m1,   e2m3,
          e3m2, u8,  u16, u32,  u64,    i8,   i16,     i32,      i64,      boolean}) {
      const bool named = type == bf16 || (format_of(type) && element_bits(type) == 8);
      const std::filesystem::path sidecar = folder / (file + ".json");
      const TensorView tensor{
          type, {3, 2}, std::as_bytes(std::span(bytes).first(6 * element_bytes(type))), false};
      const std::string text =
          fmt::format("{{\"dtype\":\"{}\",\"shape\":[3,2]}}\n", to_string(type));
      for (const char* before : {"", "{\"dtype\":\"e5m2\",\"shape\":[2,3]}\n"}) {
        INFO(file << " " << to_string(type) << " after '" << before << "'");
        std::filesystem::remove(sidecar);
        if (*before != '\0') write_text(sidecar, before);
        save_tensor(folder / file, "x", tensor);
        CHECK(std::filesystem::exists(sidecar) == (named || *before != '\0'));
        if (std::filesystem::exists(sidecar)) CHECK(read_text(sidecar) == text);
        const Operand back = load_operand((folder / file).string());
        CHECK(to_string(back.tensor().type) == to_string(type));
        CHECK(back.tensor().shape == tensor.shape);
      }
    }
}
