# docker buildx bake --file docker/bake.hcl            builds all three images
# LAPTIME_TAG=1.2 LAPTIME_REGISTRY=registry/team/ docker buildx bake --file docker/bake.hcl --push trainer
variable "LAPTIME_REGISTRY" {
  default = ""
}

variable "LAPTIME_TAG" {
  default = "dev"
}

variable "LAPTIME_COMMIT" {
  default = ""
}

variable "BASE_IMAGE" {
  default = "python:3.12-slim-bookworm"
}

group "default" {
  targets = ["trainer", "worker", "mlflow"]
}

target "image" {
  name       = image
  matrix     = { image = ["trainer", "worker", "mlflow"] }
  context    = "."
  dockerfile = "docker/Dockerfile"
  target     = image
  tags       = ["${LAPTIME_REGISTRY}laptime-${image}:${LAPTIME_TAG}"]
  args = {
    BASE_IMAGE     = BASE_IMAGE
    LAPTIME_COMMIT = LAPTIME_COMMIT
  }
}
