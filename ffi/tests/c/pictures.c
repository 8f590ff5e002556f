/* Tests pipelines that decode pictures: `pictures PICTURE OUT` decodes PICTURE, and writes the
 * result to OUT. */
#include "proof.h"

static unsigned char *read_file(const char *path, size_t *len) {
  FILE *file = fopen(path, "rb");
  CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
  *len = (size_t)ftell(file);
  rewind(file);
  unsigned char *bytes = malloc(*len);
  CHECK(bytes != NULL && fread(bytes, 1, *len, file) == *len);
  fclose(file);
  return bytes;
}

/* Checks that the text of a pipeline is rejected with this message. */
static void refused(const char *text, const char *message) {
  slotline_pipeline *pipeline = (slotline_pipeline *)&pipeline;
  slotline_error *error = NULL;
  CHECK(slotline_pipeline_new(text, NULL, &pipeline, &error) == SLOTLINE_ERROR_INVALID && pipeline == NULL);
  if (strstr(slotline_error_message(error), message) == NULL) fprintf(stderr, "%s\n", slotline_error_message(error));
  CHECK(strstr(slotline_error_message(error), message) != NULL);
  slotline_error_free(error);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  size_t len = 0;
  unsigned char *bytes = read_file(argv[1], &len);

  refused("resize(8), hflp", "transforms: character 12 of the pipeline: unknown transform hflp (did you mean hflip?)");
  refused("resize(0)", "size is 0");
  refused("hflip", "size that differs between pictures");
  refused(NULL, "transforms is NULL");

  slotline_pipeline *pipeline = NULL;
  slotline_pipeline_options options = {sizeof options, SLOTLINE_I64, 0, 0, 0, 0};
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_new("center_crop(8)", &options, &pipeline, &error));
  options.dtype = 99;
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_new("center_crop(8)", &options, &pipeline, &error));
  options.dtype = SLOTLINE_U8;
  options.reserved = 1;
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_new("center_crop(8)", &options, &pipeline, &error));
  options.reserved = 0;
  options.struct_size = 8;
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_new("center_crop(8)", &options, &pipeline, &error));
  options.struct_size = sizeof options;
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_new("center_crop(8)", &options, NULL, &error));
  CHECK(pipeline == NULL);

  options.channels_last = 1;
  int64_t shape[3] = {7, 7, 7};
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_shape(NULL, shape, &error));
  CHECK(shape[0] == 0 && shape[1] == 0 && shape[2] == 0);
  OK(slotline_pipeline_new("random_crop([8, 9])", &options, &pipeline, &error));
  OK(slotline_pipeline_shape(pipeline, shape, &error));
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_shape(pipeline, NULL, &error));
  CHECK(shape[0] == 8 && shape[1] == 9 && shape[2] == 3);
  CHECK(slotline_pipeline_dtype(pipeline) == SLOTLINE_U8 && slotline_pipeline_dtype(NULL) == 0);
  unsigned char small[8 * 9 * 3];
  OK(slotline_pipeline_decode(pipeline, bytes, len, 1, small, sizeof small, &error));
  slotline_pipeline_free(pipeline);

  static float out[3 * 16 * 12 + 1];
  const size_t size = 3 * 16 * 12 * sizeof(float);
  OK(slotline_pipeline_new("random_resized_crop([16, 12]), hflip, normalize(imagenet)", NULL, &pipeline, &error));
  CHECK(slotline_pipeline_dtype(pipeline) == SLOTLINE_F32);
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_decode(NULL, bytes, len, 1, out, size, &error));
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_decode(pipeline, NULL, len, 1, out, size, &error));
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_decode(pipeline, bytes, len, 1, NULL, size, &error));
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_decode(pipeline, bytes, len, 1, out, size + 4, &error));
  GIVES(SLOTLINE_ERROR_INVALID, slotline_pipeline_decode(pipeline, bytes, len, 1, (char *)out + 1, size, &error));
  GIVES(SLOTLINE_ERROR_SAMPLE, slotline_pipeline_decode(pipeline, bytes, 20, 1, out, size, &error));
  GIVES(SLOTLINE_ERROR_SAMPLE, slotline_pipeline_decode(pipeline, NULL, 0, 1, out, size, &error));
  GIVES(SLOTLINE_ERROR_SAMPLE, slotline_pipeline_decode(pipeline, (const uint8_t *)"<html>", 6, 1, out, size, &error));
  OK(slotline_pipeline_decode(pipeline, bytes, len, 5, out, size, &error));
  slotline_pipeline_free(pipeline);
  slotline_pipeline_free(NULL);

  FILE *file = fopen(argv[2], "wb");
  CHECK(file != NULL && fwrite(out, 1, size, file) == size && fclose(file) == 0);
  free(bytes);
  puts("ok");
  return 0;
}
